"""What is a computation, which implementations has it, and which points are measured?

A workload is one frozen `Workload` value at the foot of one file. Its functions import torch, so
only the measuring process loads it; everyone else plans with its `Description`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from gpuperf.model.cost import Cost, Work
from gpuperf.units import DTYPES, itemsize

Value = int | str
ID = re.compile(r"([^\[\]/]+)(?:/([^\[\]]*))?\[([^\[\]]*)\]")
Draw = Literal["offset", "extreme"]

# Options of the command line, which no axis may be named like.
RESERVED = frozenset(
    {
        "op",
        "sizes",
        "impl",
        "device",
        "out",
        "format",
        "timer",
        "precision",
        "budget",
        "deadline",
        "peaks",
        "resume",
        "seed",
        "debug",
        "help",
        "cache",
        "data",
        "regime",
        "gap",
        "settle",
        "counters",
        "intensity",
        "axis",
        "offsets",
        "suggest",
        "baseline",
    }
)


# Results in between that plain library code rounds to the output's dtype: the intermediate tensors
# of a short chain of operators, or of a softmax.
USUAL_ROUNDINGS = 4


class Point(dict[str, Value]):
    """One point of a sweep: `point["m"]`, or shorter `point.m`."""

    def __getattr__(self, axis: str) -> Any:
        try:
            return self[axis]
        except KeyError:
            raise AttributeError(f"this point has no axis {axis!r}") from None


@dataclass(frozen=True)
class Axis:
    """One dimension of a sweep.

    `main` axes are set together by `--sizes`. An axis with `choices` takes those names only;
    one without takes whole numbers ≥ `minimum`. The default dtype `auto` is bf16 on a GPU that
    has it and fp32 on a CPU.
    """

    name: str
    default: Value
    help: str = ""
    main: bool = False
    choices: tuple[str, ...] = ()
    minimum: int = 1


def _always(point: Point, device: Any) -> str | None:
    return None


@dataclass(frozen=True)
class Implementation:
    """One way to compute a workload.

    `build(inputs, point, options)` returns a call without arguments, and holds compile, autotune
    and capture. `supports(point, device)` returns a reason why not, or `None`; `device` is a
    `DeviceFacts`. `options` gives each option's values, the default first; where that is empty it
    is left out of the case, and of what `build` is given. `runs` is a
    regular expression that the name of one of the kernels that ran must contain: a library that
    falls back on another kernel without a word is found out. `computes` says what is computed in
    place of the formula, where that is something else (an approximation): a comparison is of
    implementations that compute the same. `roundings(point)` replaces the workload's `roundings`
    for this implementation alone.
    """

    name: str
    build: Callable[[Any, Point, Mapping[str, Value]], Callable[[], Any]]
    summary: str = ""
    supports: Callable[[Point, Any], str | None] = _always
    work: Callable[[Point], Work] | None = None
    options: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    runs: str = ""
    computes: str = ""
    roundings: Callable[[Point], int] | None = None


@dataclass(frozen=True)
class Workload:
    """A computation: axes, inputs, reference, cost and implementations.

    `inputs(point, make)` returns a dict of tensors, each from `make(shape, dtype)`, which binds
    device, seed and data; `make(shape, "int64", high=n)` draws indices from 0 to n − 1 (`int32` and
    `int8` too), and `make(shape, "bool")` a mask. `reference(inputs, point)` computes the result in
    float64. `narrow(inputs, rows)`, where given, returns inputs that yield only these rows of the
    result's leading axis (or None where they need all), so that a big result can be checked by
    pieces; `reference` is then also asked for the whole shape, on meta tensors. `terms(point)` is
    how many products or addends make one element of the result; rounding errors grow with its
    square root.
    `rounds_inputs_to(point)` names a dtype that inputs are rounded to inside (tf32);
    `roundings(point)` is how many results in between an implementation may round to the output's
    dtype. A workload that declares neither `terms` nor `roundings` is given terms by its cost, and
    `USUAL_ROUNDINGS`: enough for a matmul, a softmax or a short chain of elementwise operators.
    `mutates` names the inputs that a call changes, `aliases` those whose memory the result may
    share without a change. `prepared(point)` names those that an implementation may process before
    the timed call (by a forward pass, say): it sees by their `_version` that they have changed,
    while all others are checked to be read in every call. `result(point)` names the dtype of the
    result; where it is empty the result has the case's dtype or a finer one. `on_host` is set where
    the result is in the host's memory. `sizes(inputs, point)` gives for each tensor of the result
    the size of what is added up to make its elements, in a shape that broadcasts, or None: where
    addends may cancel to nothing, rounding is as large as they are. `factors(inputs, point)`, where
    given, are two matrices that the result is the product of: then all of it is checked in O(n²).
    `draws(point)` names harsher inputs to be checked besides the usual ones, where the formula
    stands them: `offset` (each row of a matrix scaled by 2⁻⁶ … 2⁶ and moved by 8·N), `extreme`
    (beyond where exp overflows).
    `standard` names the implementations that a sweep measures unless told otherwise (all, if
    empty); `compare` measures all. `version` is raised when the computation changes.
    """

    name: str
    summary: str
    formula: str
    axes: tuple[Axis, ...]
    inputs: Callable[[Point, Callable[..., Any]], Mapping[str, Any]]
    reference: Callable[[Mapping[str, Any], Point], Any]
    cost: Callable[[Point], Cost]
    implementations: tuple[Implementation, ...]
    narrow: Callable[[Mapping[str, Any], Any], Mapping[str, Any] | None] | None = None
    terms: Callable[[Point], int] | None = None
    rounds_inputs_to: Callable[[Point], str] = lambda point: ""
    roundings: Callable[[Point], int] | None = None
    mutates: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    prepared: Callable[[Point], tuple[str, ...]] = lambda point: ()
    result: Callable[[Point], str] = lambda point: ""
    factors: Callable[[Mapping[str, Any], Point], tuple[Any, Any]] | None = None
    draws: Callable[[Point], tuple[Draw, ...]] = lambda point: ()
    on_host: bool = False
    sizes: Callable[[Mapping[str, Any], Point], tuple[Any, ...]] | None = None
    standard: tuple[str, ...] = ()
    version: int = 1

    @property
    def declares_rounding(self) -> bool:
        """Whether the workload says itself how its results round."""
        return self.terms is not None or self.roundings is not None

    def terms_of(self, point: Point) -> int:
        """The declared `terms`; else the FLOPs of one element of the result, by the cost, where a
        multiply and an add of a matmul count once."""
        if self.terms is not None:
            return self.terms(point)
        if self.roundings is not None:
            return 1
        cost, dtype = self.cost(point), str(point["dtype"])
        written = sum(b.written for b in cost.bytes if b.channel == "dram")
        elements = max(1, written // (itemsize(dtype) if dtype in DTYPES else 1))
        sums = sum(f.count // 2 if f.kind == "matmul" else f.count for f in cost.flops)
        return max(1, sums // elements)

    def roundings_of(self, point: Point) -> int:
        """The declared `roundings`; none where `terms` alone is declared."""
        if self.roundings is not None:
            return self.roundings(point)
        return 0 if self.terms is not None else USUAL_ROUNDINGS

    def describe(self, source: str) -> Description:
        """The JSON face of this workload; *source* is where it was found."""
        return Description(
            name=self.name,
            summary=self.summary,
            formula=self.formula,
            axes=self.axes,
            implementations=tuple(
                ImplementationDescription(i.name, i.summary, dict(i.options), i.computes)
                for i in self.implementations
            ),
            version=self.version,
            source=source,
            standard=self.standard,
        )


@dataclass(frozen=True)
class ImplementationDescription:
    """An implementation, without its functions."""

    name: str
    summary: str = ""
    options: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    computes: str = ""


@dataclass(frozen=True)
class Description:
    """A workload without its functions: what the command line plans with."""

    name: str
    summary: str
    formula: str
    axes: tuple[Axis, ...]
    implementations: tuple[ImplementationDescription, ...]
    version: int
    source: str
    standard: tuple[str, ...] = ()


def case_id(op: str, implementation: str, point: Mapping[str, Value]) -> str:
    """`op/implementation[k=v,…]`, axes in the workload's order."""
    return f"{op}/{implementation}[{','.join(f'{k}={v}' for k, v in point.items())}]"


def id_parts(case: str) -> tuple[str, str, dict[str, str]] | None:
    """Return op, implementation and axes of the id *case*, as far as `case_id` wrote it.

    Verdicts of gates and the index of a history have ids alone. An id of another form has no parts;
    without a slash it has no implementation.
    """
    match = ID.fullmatch(case)
    if match is None:
        return None
    parts = [part.partition("=") for part in match[3].split(",") if part]
    if any(not equals or not axis for axis, equals, _ in parts):
        return None
    return match[1], match[2] or "", {axis: value for axis, _, value in parts}


@dataclass(frozen=True)
class Case:
    """One workload, one implementation with its options, one point of the sweep."""

    op: str
    implementation: str
    point: Mapping[str, Value]
    options: Mapping[str, Value] = field(default_factory=dict)
    source: str = "gpuperf.kernels"

    def __post_init__(self) -> None:
        values = (*self.point.values(), *self.options.values())
        if any(isinstance(value, int) and abs(value) > 2**64 for value in values):
            raise ValueError("a case has a number beyond 2^64")

    @cached_property
    def id(self) -> str:
        """`op/implementation[k=v,…]`, unique within a run."""
        return case_id(self.op, self.implementation, {**self.point, **self.options})
