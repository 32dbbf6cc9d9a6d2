"""Define a claim: the quote of a note, the check that computes its figures, and the ruling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Ruling = Literal["right", "conditional", "wrong", "open", "opinion"]
Basis = Literal["computed", "measured", "known"]
RULINGS: Mapping[Ruling, str] = {
    "right": "all figures agree with the quote",
    "conditional": "the quote holds under a condition that it leaves out",
    "wrong": "no figure agrees with the quote, or one refutes an unconditional statement",
    "open": "a measurement must decide",
    "opinion": "no figure can decide",
}


@dataclass(frozen=True)
class Says:
    """A statement about one figure, in words and as a test."""

    text: str
    holds: Callable[[float], bool]


def near(value: float, tolerance: float = 0.05) -> Says:
    """Say that a figure is *value*, within a fraction of it."""
    return Says(f"{value:.6g}", lambda x: math.isclose(x, value, rel_tol=tolerance, abs_tol=1e-12))


def printed(text: str) -> Says:
    """Say that a figure is *text*, within half a unit of its last digit."""
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    value = float(text)
    return Says(text, lambda x: abs(x - value) <= half * (1 + 1e-9))


def over(bound: float) -> Says:
    """Say that a figure is larger than *bound*."""
    return Says(f"> {bound:.6g}", lambda x: x > bound)


def under(bound: float) -> Says:
    """Say that a figure is smaller than *bound*."""
    return Says(f"< {bound:.6g}", lambda x: x < bound)


def between(low: float, high: float) -> Says:
    """Say that a figure is from *low* to *high*."""
    return Says(f"{low:.6g} to {high:.6g}", lambda x: low <= x <= high)


ONE = near(1, 1e-9)
CONTEXT = Says("", lambda x: True)  # of a figure that is shown beside, and decides nothing
Figures = Mapping[str, float | tuple[float, Says]]  # by label, with what is said of this one
Value = int | str  # of an axis


@dataclass(frozen=True)
class Query:
    """A selection of records, and the quantity that they give.

    The records have this workload and implementation, and the values *at* axes or options; None
    means that a record lacks the axis, as a forward of softmax lacks `mode`. With *over*, the
    quantity is divided by that of the record which differs in these axes (or in `implementation`)
    alone; with *along*, it is the slope of its logarithm over that of the axis. *study* is the kind
    of run, such as `lab:latency`; empty, any. *says* replaces the statement of the claim; `reading`
    is the name of a quantity in `query.QUANTITIES`.
    """

    op: str
    implementation: str
    reading: str
    at: Mapping[str, Value | None] = field(default_factory=dict)
    over: Mapping[str, Value] = field(default_factory=dict)
    along: str = ""
    label: str = ""
    unit: str = ""
    says: Says | None = None
    study: str = ""


@dataclass(frozen=True)
class Known:
    """A ruling that no function computes here, and the source that it is known from."""

    ruling: Ruling
    source: str


@dataclass(frozen=True)
class Claim:
    """A claim of a note, and its check.

    `check` states the formula or the experiment, `why` what a reader should know besides, such as
    the condition. `figures` computes the figures that `says` is about, by label. The quote is right
    if it agrees with all, wrong if with none, else conditional; a `joint` quote (a table, a vector,
    or a `must`) is wrong if it disagrees with one. A claim without figures is decided by its
    `queries`, and without a fitting record it has the ruling that is `known`. `waits` names the
    experiment or the verb that will measure it.
    """

    id: str
    quote: str
    check: str
    says: Says | None = None
    figures: Callable[[], Figures] | None = None
    unit: str = ""
    why: str = ""
    joint: bool = False
    known: Known | None = None
    queries: tuple[Query, ...] = ()
    waits: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure beside what the quote says of it, and where a measured one is from."""

    label: str
    value: float
    unit: str
    says: str
    holds: bool
    source: str = ""


@dataclass(frozen=True)
class Judged:
    """A claim with its figures, its ruling, and what the ruling is based on."""

    claim: Claim
    computed: tuple[Figure, ...]
    measured: tuple[Figure, ...]
    ruling: Ruling
    basis: Basis


def compare(
    claim: Claim, label: str, value: float, says: Says | None, unit: str, source: str = ""
) -> Figure:
    """Compare one figure with what the quote says, or with *says*. Raises: ValueError."""
    stated = says or claim.says
    if stated is None or not math.isfinite(value):
        raise ValueError(f"the figure {label!r} of {claim.id} is {value}, or nothing is said of it")
    return Figure(label, value, unit, stated.text, stated.holds(value), source)


def compute(claim: Claim) -> tuple[Figure, ...]:
    """Compute the figures of *claim*; none if it has no check that computes."""
    figures = []
    for label, each in (claim.figures() if claim.figures else {}).items():
        value, says = each if isinstance(each, tuple) else (each, None)
        figures.append(compare(claim, label, value, says, claim.unit))
    return tuple(figures)


def rule(figures: Sequence[Figure], joint: bool) -> Ruling:
    """Return the ruling that follows from *figures*, of which there is at least one."""
    holding = sum(figure.holds for figure in figures)
    if holding == len(figures):
        return "right"
    return "conditional" if holding and not joint else "wrong"


def judge(claim: Claim, measured: tuple[Figure, ...] = ()) -> Judged:
    """Compute the figures of *claim*, and rule on it by these, else by the *measured* ones, else by
    what is known. A claim that is known to be open stays so until it is measured."""
    computed = compute(claim)
    still_open = claim.known is not None and claim.known.ruling in ("open", "opinion")
    if computed and not still_open:
        return Judged(claim, computed, measured, rule(computed, claim.joint), "computed")
    deciding = [figure for figure in measured if figure.says]
    if deciding:
        return Judged(claim, computed, measured, rule(deciding, claim.joint), "measured")
    if claim.known is None:
        raise ValueError(f"the claim {claim.id} has neither figures nor a known ruling")
    return Judged(claim, computed, measured, claim.known.ruling, "known")
