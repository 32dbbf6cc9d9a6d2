"""Define workloads, their implementations, and the cases that are measured.

A workload is one frozen `Workload` value at the end of a file. Its functions import torch, so only
the worker loads it; the supervisor plans with its `Description`.
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

# Options of the command line, which an axis must not share a name with.
OPTIONS = """
op sizes impl device out format timer precision budget deadline peaks resume seed debug help cache
data regime gap settle energy counters intensity axis offsets suggest baseline gpus world
"""
RESERVED = frozenset(OPTIONS.split())

# Intermediate results that plain library code rounds to the dtype of the output, in a softmax or in
# a short chain of operators.
USUAL_ROUNDINGS = 4


class Point(dict[str, Value]):
    """One point of a sweep; an axis is `point["m"]` or `point.m`."""

    def __getattr__(self, axis: str) -> Any:
        try:
            return self[axis]
        except KeyError:
            raise AttributeError(f"this point has no axis {axis!r}") from None


@dataclass(frozen=True)
class Axis:
    """One dimension of a sweep.

    `--sizes` sets all `main` axes together. An axis with `choices` takes one of these names; any
    other axis takes whole numbers ≥ `minimum`. The default dtype `auto` is bf16 on a GPU that
    supports it, and fp32 on a CPU. A point lacks an `optional` axis that has its default: add such
    an axis to a workload and its earlier cases keep their ids, so that stored runs still compare.
    A `swept` axis has all its choices unless the user gives some.
    """

    name: str
    default: Value
    help: str = ""
    main: bool = False
    choices: tuple[str, ...] = ()
    minimum: int = 1
    optional: bool = False
    swept: bool = False


def _always(point: Point, device: Any) -> str | None:
    return None


@dataclass(frozen=True)
class Dropout:
    """Elements that one call kept at random: `kept` and `possible` are boolean tensors.

    Each element is kept with the probability `share`, independently of all others. `possible` is
    false where no result can show whether an element was kept; its shape broadcasts to that of
    `kept`, whose last axes are those along which elements are summed, and whose leading axis is
    that of the result.
    """

    kept: Any
    possible: Any
    share: float


# observe(inputs, run) returns what a call keeps; run(name=tensor, …) returns the result of the call
# with these inputs in place of its own.
Observe = Callable[[Mapping[str, Any], Callable[..., Any]], Dropout]


@dataclass(frozen=True)
class Implementation:
    """One way to compute a workload.

    `build(inputs, point, options)` returns a call without arguments; compilation, autotuning and
    capture belong into it. `supports(point, device)` returns the reason why the implementation
    cannot run, or `None`; `device` is a `DeviceFacts`. `options` has the values of each option, the
    default first; an option without values is left out of the case and of the call of `build`.
    `runs` is a regular expression that the name of one of its kernels must match, which detects a
    library that silently falls back on another kernel. `computes` says what the implementation
    computes in place of the formula, such as an approximation; comparisons keep to implementations
    that compute the same. `roundings(point)` overrides the workload's `roundings`.
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
    on_host: Callable[[Point], bool] | None = None


@dataclass(frozen=True)
class Workload:
    """A computation: axes, inputs, reference, cost and implementations.

    `inputs(point, make)` returns a dict of tensors, each from `make(shape, dtype)`, which binds
    device, seed and data; `make(shape, "int64", high=n)` draws indices from 0 to n − 1 (`int32` and
    `int8` too), and `make(shape, "bool")` a mask. `mutates` names the inputs that a call changes,
    `aliases` those whose memory the result may share unchanged. `prepared(point)` names those that
    an implementation may process before the timed call, as a forward pass does; it detects changes
    by their `_version`, while all other inputs are checked to be read in every call.

    `reference(inputs, point)` computes the result in float64. `narrow(inputs, rows)` returns the
    inputs of these rows of the result's leading axis alone (or None if the rows need all inputs),
    so that a big result can be checked in pieces; its whole shape follows from one row and from
    two, or else `reference` is called on meta tensors. `factors(inputs, point)` returns two
    matrices whose product is the result, which can then be checked in O(n²). `result(point)` is the
    dtype of the result; if it is empty, the result has the dtype of the case or a finer one.
    `on_host` says that the result is in host memory.

    `terms(point)` is the number of products or addends of one element of the result; rounding
    errors grow with its square root; 0 declares that the result is exact. `roundings(point)` is the
    number of intermediate results that an implementation may round to the dtype of the output. A
    workload that declares neither gets its terms from its cost, and `USUAL_ROUNDINGS`, which is
    enough for a matmul, a softmax or a short chain of elementwise operators.
    `rounds_inputs_to(point)` is a dtype to which inputs are rounded inside (tf32). `sizes(inputs,
    point)` gives, for each tensor of the result, the size of the addends of its elements, in a
    shape that broadcasts, or None: if addends cancel, rounding errors are relative to them.
    `draws(point)` names harsher inputs for further checks, if the formula allows them: `offset`
    (each row of a matrix scaled by 2⁻⁶ … 2⁶ and shifted by 8·N), `extreme` (beyond the overflow of
    exp).

    `dropout(point)` returns None, or how to observe what a call drops: `observe(inputs, run)` reads
    the `Dropout` from results of the call on inputs that show it. `run(name=tensor, …)` replaces
    these inputs, and sets torch's random generators to the state of the call that is checked. The
    reference then gets the elements as `inputs["kept"]`.

    With `world`, every call is one of a gang of processes, each with a device of its own: `--gpus`
    sets how many, the point has their number as `world`, and `torch.distributed` has a default
    group of them in which `inputs`, `reference` and calls find their rank. Each rank has inputs and
    a reference of its own, drawn from one seed. `mutates_at(point)` names further inputs that the
    calls at one point change, such as those in place.

    `standard` names the implementations that a sweep measures by default (empty: all); `compare`
    measures all. With `steps`, each implementation changes one thing of the one before, and
    `compare` shows the gain of each. `version` must be raised when the computation changes.
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
    dropout: Callable[[Point], Observe | None] = lambda point: None
    standard: tuple[str, ...] = ()
    steps: bool = False
    world: bool = False
    mutates_at: Callable[[Point], tuple[str, ...]] = lambda point: ()
    version: int = 1

    def mutated(self, point: Point) -> tuple[str, ...]:
        """Return the names of the inputs that a call at *point* changes."""
        return (*self.mutates, *self.mutates_at(point))

    @property
    def declares_rounding(self) -> bool:
        """Whether the workload declares `terms` or `roundings`."""
        return self.terms is not None or self.roundings is not None

    def terms_of(self, point: Point) -> int:
        """Return the declared `terms`, or the FLOPs of the cost for one element of the result, with
        a multiply-add of a matmul counted once."""
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
        """Return the declared `roundings`; 0 if only `terms` is declared."""
        if self.roundings is not None:
            return self.roundings(point)
        return 0 if self.terms is not None else USUAL_ROUNDINGS

    def describe(self, source: str) -> Description:
        """Return the `Description` of this workload, which was loaded from *source*."""
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
            steps=self.steps,
            world=self.world,
        )


@dataclass(frozen=True)
class ImplementationDescription:
    """An `Implementation` without its functions."""

    name: str
    summary: str = ""
    options: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    computes: str = ""


@dataclass(frozen=True)
class Description:
    """A `Workload` without its functions, with which the command line plans."""

    name: str
    summary: str
    formula: str
    axes: tuple[Axis, ...]
    implementations: tuple[ImplementationDescription, ...]
    version: int
    source: str
    standard: tuple[str, ...] = ()
    steps: bool = False
    world: bool = False


def case_id(op: str, implementation: str, point: Mapping[str, Value]) -> str:
    """Return `op/implementation[k=v,…]`, with the axes in the order of the workload."""
    return f"{op}/{implementation}[{','.join(f'{k}={v}' for k, v in point.items())}]"


def id_parts(case: str) -> tuple[str, str, dict[str, str]] | None:
    """Return op, implementation and axes of the id *case*; None if `case_id` did not write it.

    Verdicts of gates and the index of a history store ids alone. An id without a slash has an empty
    implementation.
    """
    match = ID.fullmatch(case) if case.endswith("]") else None
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
