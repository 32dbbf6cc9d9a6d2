"""Options that mean the same for every measuring verb."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.model.contract import Cache, Counting, Data, Regime
from gpuperf.model.timers import TIMERS, timer_names
from gpuperf.model.workload import RESERVED, Description
from gpuperf.run.launcher import LocalLauncher
from gpuperf.run.plan import Conditions
from gpuperf.run.supervisor import DEADLINE_S, Supervisor
from gpuperf.show.view import View
from gpuperf.units import parse_duration


class By(StrEnum):
    """What a profile is told by."""

    OPERATORS = "operators"
    KERNELS = "kernels"


class Format(StrEnum):
    """How data is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


class TableOrJson(StrEnum):
    """How data is printed that is no table of rows."""

    TABLE = "table"
    JSON = "json"


if TYPE_CHECKING:
    TimerChoice = str
else:
    TimerChoice = StrEnum("TimerChoice", {name.upper(): name for name in timer_names()})


Op = Annotated[
    str | None,
    typer.Option(
        help="Workload: a name of `gpuperf list`, ./mine.py, or pkg.mod:NAME.", show_default=False
    ),
]
Sizes = Annotated[
    str | None,
    typer.Option(
        metavar="RANGE",
        help="Main axes together: 128:8192 doubles, 1k:2k:+64 steps, commas join. An axis given "
        "by name keeps its own sizes.",
        show_default=False,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        help="bf16, fp16, fp32, tf32, fp64, fp8, int8; commas join; all.", show_default=False
    ),
]
Impl = Annotated[str | None, typer.Option(help="Implementations; commas join.", show_default=False)]
DeviceName = Annotated[str, typer.Option("--device", help="auto, cuda:0 or cpu.")]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=4096,
        show_default=False,
        help="Threads of a CPU that compute; torch's own choice, unless given.",
    ),
]


def _folder(text: str | Path) -> Path:
    if not str(text):
        raise UsageError("--out names no folder", "for example --out gpuperf-runs")
    return Path(text)


Out = Annotated[
    Path, typer.Option(parser=_folder, metavar="PATH", help="Folder for the run file and charts.")
]
ByOption = Annotated[By, typer.Option(help="Of a profile: its operators, or the kernels.")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print.")]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        show_default=False,
        help="Show these columns of the table: time,clock,MFU; or all.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Show the whole table, every caveat in full, and all sources."
    ),
]
TimerOption = Annotated[
    TimerChoice | None,
    typer.Option(
        "--timer",
        help="How to time; never swapped for another. "
        + "; ".join(f"{name}: {TIMERS[name].help}" for name in timer_names())
        + ".",
        show_default=False,
    ),
]
LEAST_PRECISE = 1.0


def _precision(text: str | float) -> float:
    """`0.01` and `1%` are the same. Raises: UsageError."""
    words = str(text).strip()
    try:
        value = float(words.removesuffix("%")) / (100 if words.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 1e-4 <= value <= LEAST_PRECISE:
        told = "is not a number" if math.isnan(value) else "is not from 0.0001 to 1"
        raise UsageError(f"--precision {words} {told}", "0.01 is 1 %; --precision 1% is the same")
    return value


Precision = Annotated[
    float,
    typer.Option(
        parser=_precision,
        metavar="FRACTION",
        help="Stop at this half-width of the 95 % interval: 0.01, or 1%.",
    ),
]
CacheOption = Annotated[
    str | None,
    typer.Option("--cache", help="cold, cold-dirty, rotate, hot; commas join.", show_default=False),
]
RegimeOption = Annotated[
    str | None, typer.Option("--regime", help="burst, sustained; commas join.", show_default=False)
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="randn, uniform, zeros, ints; commas join.", show_default=False),
]
CountersOption = Annotated[
    str,
    typer.Option(
        "--counters",
        help="Hardware counters: off, auto (DRAM bytes where they can be had), require, kernels "
        "(each kernel's too), ncu (by Nsight Compute).",
    ),
]
INTENSITY = typer.Option(
    "--intensity",
    help="Bytes of the x axis: compulsory, modelled, measured, both (arrows), hierarchy (DRAM "
    "and L2).",
)
IntensityOption = Annotated[str, INTENSITY]
Gap = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        show_default=False,
        help="Rest before each sample: 5ms, 500us; a bare number is seconds.",
    ),
]
Settle = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        show_default=False,
        help="Longest sustained load: 60s, 2min; a bare number is seconds.",
    ),
]


def _seconds_of(option: str, least: float, most: float) -> Callable[[str | float], float]:
    def parse(text: str | float) -> float:
        found = _duration(option, str(text), most) or 0.0
        if found < least:
            raise UsageError(f"--{option} {text} is under {least:g} s", f"--{option} {least:g}")
        return found

    return parse


LONGEST_BUDGET_S, LONGEST_DEADLINE_S = 3600.0, 86400.0
Budget = Annotated[
    float,
    typer.Option(
        parser=_seconds_of("budget", 0.0, LONGEST_BUDGET_S),
        metavar="DURATION",
        help="Sampling of a case, at most: seconds, or 500ms, 2min. On a CPU, a size whose calls "
        "exceed it is skipped.",
    ),
]
Deadline = Annotated[
    float,
    typer.Option(
        parser=_seconds_of("deadline", 1.0, LONGEST_DEADLINE_S),
        metavar="DURATION",
        help="Longest silence of a case: seconds, or 500ms, 2min.",
    ),
]
PeaksFile = Annotated[
    Path | None,
    typer.Option("--peaks", metavar="FILE", help="Your own peaks file.", show_default=False),
]
Resume = Annotated[
    Path | None,
    typer.Option(metavar="RUN", help="Measure what a run file still lacks.", show_default=False),
]
Seed = Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the inputs.")]

DEFAULT_DEADLINE_S = DEADLINE_S
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LONGEST_GAP_S, LONGEST_SETTLE_S = 60.0, 3600.0

T = TypeVar("T")


def split(text: str | None) -> tuple[str, ...]:
    """`a,b` as a tuple; empty for None. Raises: UsageError for an empty name."""
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    if not all(names):
        raise UsageError(f"{text!r} has an empty name in it", "commas join names: torch,triton")
    return names


@dataclass(frozen=True)
class Options:
    """The options that measuring verbs share, as they were given: a verb names those that it has.

    `words` are what the command line holds beyond options, as axes of a workload; `typed` are the
    names of the options that were typed.
    """

    op: Op = None
    sizes: Sizes = None
    dtype: Dtype = None
    impl: Impl = None
    device: DeviceName = "auto"
    threads: Threads = None
    timer: TimerOption = None
    precision: Precision = 0.01
    budget: Budget = 2.0
    cache: CacheOption = None
    regime: RegimeOption = None
    data: DataOption = None
    gap: Gap = None
    settle: Settle = None
    counters: CountersOption = "auto"
    intensity: IntensityOption = "compulsory"
    deadline: Deadline = DEFAULT_DEADLINE_S
    peaks: PeaksFile = None
    out: Out = Path("gpuperf-runs")
    format: FormatOption = Format.TABLE
    columns: Columns = None
    verbose: Verbose = False
    resume: Resume = None
    seed: Seed = 0
    words: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()

    @property
    def conditions(self) -> Conditions:
        """How times are to be taken. Raises: UnknownName, UsageError."""
        return Conditions(
            timer=str(self.timer) if self.timer else None,
            precision=self.precision,
            budget_s=self.budget,
            caches=_chosen("cache", self.cache, get_args(Cache)),
            regimes=_chosen("regime", self.regime, get_args(Regime)),
            data=_chosen("data", self.data, [d for d in get_args(Data) if d != "own"]),
            gap_s=_duration("gap", self.gap, LONGEST_GAP_S),
            settle_s=_duration("settle", self.settle, LONGEST_SETTLE_S),
            counting=_one("counters", self.counters, get_args(Counting)),
        )

    def supervisor(self) -> Supervisor:
        """Return a supervisor of local workers on the device. Raises: CannotMeasure."""
        return make_supervisor(self.device, self.deadline, self.threads)


CASES = ("op", "sizes", "dtype", "impl")
TIMING = ("timer", "precision", "budget")
CONDITIONS = ("cache", "regime", "data", "gap", "settle")
FILES = ("deadline", "peaks", "out", "format")
LOOK = ("columns", "verbose")
TYPED = "COMMANDLINE"


def takes(*names: str, **defaults: object) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Make a command of a function of `Options`, with the shared options *names* behind its own.

    *defaults* replace the usual defaults of some.
    """
    types = get_type_hints(Options, include_extras=True)
    usual: dict[str, Any] = {field.name: field.default for field in fields(Options)} | defaults
    option = Parameter.POSITIONAL_OR_KEYWORD
    shared = [Parameter(n, option, default=usual[n], annotation=types[n]) for n in names]

    def make(function: Callable[..., T]) -> Callable[..., T]:
        own = list(signature(function, eval_str=True).parameters.values())[1:]
        first = Parameter("ctx", option, annotation=typer.Context)

        @wraps(function)
        def command(ctx: typer.Context, **given: Any) -> T:
            sources = {name: ctx.get_parameter_source(name) for name in names}
            more: dict[str, Any] = {name: given.pop(name) for name in names}
            typed = tuple(n for n, source in sources.items() if source and source.name == TYPED)
            more |= {"words": tuple(ctx.args), "typed": typed}
            options = Options(**{**usual, **more})
            return function(options, **given)

        parameters = [first, *(p.replace(kind=option) for p in own), *shared]
        parameters.sort(key=lambda parameter: parameter.default is not Parameter.empty)
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return make


def _chosen(option: str, text: str | None, known: Sequence[T]) -> tuple[T, ...]:
    names = split(text)
    for name in names:
        if name not in known:
            raise UnknownName(option, name, [str(k) for k in known])
    return tuple(choice for name in dict.fromkeys(names) for choice in known if choice == name)


def view(text: str) -> View:
    """The bytes that a chart's x axis is of. Raises: UnknownName."""
    chosen: View = _one("intensity", text, get_args(View))
    return chosen


def _one(option: str, text: str, known: Sequence[T]) -> T:
    for choice in known:
        if choice == text:
            return choice
    raise UnknownName(option, text, [str(k) for k in known])


def _duration(option: str, text: str | None, most: float) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--{option}: {error}", f"for example --{option} 2s") from None
    if seconds > most:
        raise UsageError(f"--{option} {text} is over {most:g} s", f"for example --{option} 2s")
    return seconds


def seconds(option: str, text: str | None) -> float:
    """A duration in seconds; 0 for None. Raises: UsageError."""
    return _duration(option, text, LONGEST_GAP_S) or 0.0


def axis_options(extra: Sequence[str], description: Description) -> dict[str, str]:
    """`--m 128 --n=256` as {"m": "128", "n": "256"}; each must be an axis of the workload, or an
    option of one of its implementations.

    Raises: UnknownName, UsageError.
    """
    names = [axis.name for axis in description.axes if axis.name != "dtype"]
    names += dict.fromkeys(option for i in description.implementations for option in i.options)
    given: dict[str, str] = {}
    rest = list(extra)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            hint = "one workload at a time; its axes are options"
            raise UsageError(f"unexpected argument {word!r}", hint)
        option, equals, value = word.partition("=")
        name = option[2:].replace("-", "_") if option[2:] not in names else option[2:]
        if name not in names:
            known = [f"--{n}" for n in (*names, "dtype", *RESERVED)]
            own = ", ".join(f"--{n.replace('_', '-')}" for n in (*names, "dtype"))
            raise UnknownName("option", option, known, f"axes of {description.name}: {own}")
        if not equals:
            if not rest:
                raise UsageError(f"{option} needs a value", f"for example {option} 4096")
            value = rest.pop(0)
        if name in given:
            raise UsageError(f"{option} is given twice", f"commas join: {option} 512,4096")
        given[name] = value
    return given


def make_supervisor(
    device: str, deadline_s: float = DEFAULT_DEADLINE_S, threads: int | None = None
) -> Supervisor:
    """A supervisor of local workers; `--debug` shows what they print. On a CPU they compute with
    so many *threads*. Raises: CannotMeasure where *threads* are asked for and the device is a GPU.
    """
    debug = bool(os.environ.get("GPUPERF_DEBUG"))
    # A worker inherits them: a library reads them when it is loaded, and keeps to them.
    limits = {name: str(threads) for name in THREAD_VARIABLES} if threads else {}
    os.environ.update(limits)
    supervisor = Supervisor(LocalLauncher(debug), device, deadline_s)
    if threads is not None and (facts := supervisor.open().device).kind != "cpu":
        raise CannotMeasure(
            f"--threads is for a CPU, and the device is {facts.name}", "--device cpu, or leave it"
        )
    return supervisor


BASELINES = Path("gpuperf-baselines")
Baselines = Annotated[Path, typer.Option(help="Folder of baselines.")]
