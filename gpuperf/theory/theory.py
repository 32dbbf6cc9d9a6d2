"""Define a theory: parameters in, the rows of a table and a plot out."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from gpuperf.errors import UnknownName, UsageError
from gpuperf.model.cost import FlopKind, Flops
from gpuperf.model.peaks import Peaks
from gpuperf.show.table import ALWAYS
from gpuperf.units import parse_range

Value = int | float | str | None  # of a cell; None is unknown
CLAIMS, SERVE = "claims", "serve"  # listed among the theories, with a package of their own
QUESTIONS = {
    CLAIMS: "What do the notes say, and is it right?",
    SERVE: "What do static and in-flight batching of requests give?",
}
LARGEST = 2**30  # of a parameter that sets no limit of its own
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")


@dataclass(frozen=True)
class Parameter:
    """An option `--name` of a theory.

    It is one of `choices`, or a whole number from `least` to `most`; a `number` may have a
    fraction, and a `text` is taken as it is. A `swept` parameter is several of these (`128:16k`,
    `64,128`). `default` is a text as a user types it.
    """

    name: str
    default: str
    meaning: str
    least: float = 1
    most: float = LARGEST
    choices: tuple[str, ...] = ()
    swept: bool = False
    kind: Literal["whole", "number", "text"] = "whole"


@dataclass(frozen=True)
class Quantity:
    """A column of a theory's table: its key in JSON, its head, its unit, and its formula.

    The unit `byte`, `FLOP`, `FLOP/s`, `byte/s` or `s` is shown with a prefix; a quantity without a
    unit is a count, a ratio or a text. A narrow terminal drops the column with the lowest `keep`
    first.
    """

    key: str
    head: str
    unit: str = ""
    formula: str = ""
    keep: int = ALWAYS


@dataclass(frozen=True)
class Curve:
    """A line of a plot: its label and its points (x, y)."""

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """Curves over one axis, with horizontal `levels` by label.

    Both axes are logarithmic unless `linear`. `names` replaces the numbers on the x axis, and
    values in bytes have `in_bytes`, and those of x `of_bytes`. `title` is for one of several plots.
    """

    x: str
    y: str
    curves: Sequence[Curve]
    levels: Mapping[str, float] = field(default_factory=dict)
    linear: bool = False
    names: Mapping[float, str] = field(default_factory=dict)
    in_bytes: bool = False
    of_bytes: bool = False
    title: str = ""


Rows = Callable[[Any, "Chip"], Iterable[Sequence[Value]]]


@dataclass(frozen=True)
class Part:
    """A further table of a theory: its name in JSON, its title, its columns and its rows."""

    name: str
    title: str
    quantities: tuple[Quantity, ...]
    rows: Rows


@dataclass(frozen=True)
class Theory:
    """A theory: `rows(at, chip)` computes the cells of each row in the order of `quantities`.

    `at` has an attribute for each parameter: a number or a text, or a tuple of these if swept.
    `sources` say where the formulas come from, `notes` what they leave out, and `remarks(at, chip)`
    what is doubtful about these values. A theory may have more tables, `parts`, and several plots.
    """

    question: str
    parameters: tuple[Parameter, ...]
    quantities: tuple[Quantity, ...]
    rows: Rows
    plot: Callable[[Any, Chip], Plot | tuple[Plot, ...]]
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    remarks: Callable[[Any, Chip], Iterable[str]] = lambda at, chip: ()

    def plots(self, at: Any, chip: Chip) -> tuple[Plot, ...]:
        """Return the plots of these values, one or more."""
        drawn = self.plot(at, chip)
        return drawn if isinstance(drawn, tuple) else (drawn,)


class At:
    """The values of a theory's parameters, as attributes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


@dataclass(frozen=True)
class Chip:
    """The peaks of a device as a theory asks for them; an unknown figure is None."""

    peaks: Peaks

    @property
    def sms(self) -> int:
        """The number of SMs."""
        return self.peaks.sm_count

    @property
    def bandwidth(self) -> float | None:
        """The DRAM bandwidth in byte/s."""
        return self.figure("memory_bandwidth")

    def figure(self, name: str) -> float | None:
        """Return a figure of the device in SI units, such as `l2` or `shared_memory` (bytes)."""
        figure = self.peaks.figures.get(name)
        return figure.value if figure else None

    @property
    def block_shared(self) -> float | None:
        """The most shared memory of one block, in bytes.

        From compute capability 8.0 on the system keeps 1 KiB of an SM's for each block.
        """
        shared, capability = self.figure("shared_memory"), self.peaks.capability
        modern = capability.partition(".")[0].isdigit() and float(capability) >= 8.0
        return shared - 1024 if shared and modern else shared

    def rate(self, dtype: str, kind: FlopKind = "matmul") -> float | None:
        """Return the peak in FLOP/s: of the fastest pipe for a matmul, else of the vector pipe."""
        ceiling = self.peaks.ceiling(Flops(1, kind, dtype))
        return ceiling.rate.value if ceiling else None

    def ridge(self, dtype: str, kind: FlopKind = "matmul") -> float | None:
        """Return the intensity in FLOP/byte from which compute binds: peak over bandwidth."""
        return ratio(self.rate(dtype, kind), self.bandwidth)


def ratio(over: float | None, under: float | None) -> float | None:
    """Return over / under; None if one of them is unknown or *under* is 0."""
    return None if over is None or not under else over / under


def longest(*seconds: float | None) -> float | None:
    """Return the longest time; None if one is unknown."""
    return None if None in seconds else max(s for s in seconds if s is not None)


def theory_names() -> tuple[str, ...]:
    """Return the names of all theories, by reading the files of this package."""
    folder = Path(__file__).parent
    modules = (m.name for m in pkgutil.iter_modules([str(folder)]) if not m.ispkg)
    files = (folder / f"{name}.py" for name in modules)
    return tuple(sorted(f.stem for f in files if "\nTHEORY = " in f.read_text(encoding="utf-8")))


def listed_names() -> tuple[str, ...]:
    """Return what `gpuperf theory NAME` takes, as a user types it."""
    return tuple(sorted((*(name.replace("_", "-") for name in theory_names()), *QUESTIONS)))


def find_theory(name: str) -> Theory:
    """Return the theory *name*. Raises: UnknownName."""
    known = {each.replace("_", "-"): each for each in theory_names()}
    module = known.get(name.replace("_", "-"))
    if module is None:
        raise UnknownName("theory", name, listed_names())
    theory: Theory = import_module(f"gpuperf.theory.{module}").THEORY
    return theory


def values_of(theory: Theory, given: Mapping[str, str]) -> At:
    """Return the values of the parameters, as *given* or by default. Raises: UsageError."""
    return parse_values(theory.parameters, given)


def parse_values(parameters: Iterable[Parameter], given: Mapping[str, str]) -> At:
    """Return the values of *parameters*, as *given* or by default. Raises: UsageError."""
    return At({p.name: _value(p, given.get(p.name, p.default)) for p in parameters})


def _value(parameter: Parameter, text: str) -> Any:
    option = f"--{parameter.name.replace('_', '-')}"
    values = _values(parameter, option, text)
    if len(values) > 1 and not parameter.swept:
        raise UsageError(f"{option} takes one value, not {text!r}", f"{option} {parameter.default}")
    return values if parameter.swept else values[0]


def _values(parameter: Parameter, option: str, text: str) -> tuple[Any, ...]:
    if parameter.kind == "text":
        texts = text.split(",") if parameter.swept else [text]
        return tuple(dict.fromkeys(part.strip() for part in texts))
    if parameter.choices:
        chosen = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        for part in chosen:
            if part not in parameter.choices:
                raise UnknownName(f"value of {option}", part, parameter.choices)
        return chosen
    try:
        whole = parameter.kind == "whole"
        values = parse_range(text, int(parameter.least)) if whole else _numbers(text)
    except ValueError as error:
        hint = f"for example {option} {parameter.default}"
        raise UsageError(f"{option}: {error}", hint) from None
    if max(values) > parameter.most:
        most = f"{parameter.most:.15g}"
        raise UsageError(f"{option} {text} is over {most}", f"{option} {most}")
    if min(values) < parameter.least:
        raise UsageError(
            f"{option} {text} is below {parameter.least:g}", f"{option} {parameter.least:g}"
        )
    return values


def _numbers(text: str) -> tuple[float, ...]:
    """Parse numbers joined by commas. Raises: ValueError."""
    return tuple(dict.fromkeys(_number(part) for part in text.split(",")))


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text.strip()[:40]!r} is not a number (like 0.7)")
    return value
