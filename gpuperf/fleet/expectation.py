"""Store what a healthy fleet of one device measured, and compare a fleet with it.

A fleet that is slow as a whole has no slow host among its peers: only an earlier measurement shows
it. The file has the median time of each case over the devices, and the noise between devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import read_regular, write_atomically
from gpuperf.fleet.grid import Grid
from gpuperf.fleet.rule import FleetRule, median
from gpuperf.fleet.shard import Fact, Head
from gpuperf.model.codec import decode, to_builtins
from gpuperf.model.contract import Contract
from gpuperf.model.samples import LONGEST_S, SHORTEST_S
from gpuperf.model.text import clean_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA = 1
LARGEST = 64 << 20  # bytes of a file; 10,000 cases have 1 MB
MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean, for a normal distribution
SAME = ("product", "sm_count")  # facts of the device that must be those of the expectation
HINT = "`gpuperf fleet expect SHARDS --out FILE` writes one from a fleet that was judged good"


@dataclass(frozen=True)
class Expectation:
    """What a fleet of `units` devices measured: median seconds by case, and the scatter between
    devices (as a log ratio) by test."""

    device: Mapping[str, Fact]
    suite: str
    suite_hash: str
    contract: Contract
    units: int
    times_s: Mapping[str, float]
    scatter: Mapping[str, float]
    soft: Mapping[str, Fact] = field(default_factory=dict)
    created: str = ""
    schema: int = SCHEMA


@dataclass(frozen=True)
class Shift:
    """How much slower a whole fleet is in a test than expected (a log ratio), and whether that is
    more than the noise and the margin allow."""

    test: str
    shift: float
    slow: bool


def expectation_of(grid: Grid, head: Head, scatter: NDArray[Any]) -> Expectation:
    """Return what *grid* measured, as the expectation of its device; *head* is of any shard."""
    middles = median(grid.logs, 0)
    device = head.devices[0]
    times = {c: math.exp(v) for c, v in zip(grid.cases, middles, strict=True) if math.isfinite(v)}
    return Expectation(
        device=device.hard,
        suite=head.suite,
        suite_hash=head.suite_hash,
        contract=head.contract,
        units=len(grid.units),
        times_s=times,
        scatter=dict(zip(grid.tests, map(float, scatter), strict=False)),
        soft=device.soft,
        created=head.created,
    )


def write_expectation(expectation: Expectation, path: Path) -> None:
    """Write *expectation* to *path*. Raises: UsageError if that fails."""
    try:
        text = msgspec.json.format(msgspec.json.encode(expectation), indent=1)
        write_atomically(path, text + b"\n")
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", "choose another --out"
        ) from None


def read_expectation(path: Path) -> Expectation:
    """Read the expectation in *path*. Raises: UsageError."""
    try:
        expectation = decode(clean_json(read_regular(path, LARGEST)), Expectation)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", HINT) from None
    except ValueError as error:
        raise UsageError(f"{path} is no expectation: {str(error)[:200]}", HINT) from None
    if expectation.schema != SCHEMA:
        raise UsageError(f"{path} has schema {expectation.schema}", f"this gpuperf reads {SCHEMA}")
    if not all(SHORTEST_S < time < LONGEST_S for time in expectation.times_s.values()):
        raise UsageError(f"{path} has a time that is not plausible", HINT)
    return expectation


def refuse_other(expectation: Expectation, head: Head) -> None:
    """Refuse an expectation of another device, suite or contract. Raises: CannotMeasure."""
    hard = head.devices[0].hard
    pairs: dict[str, tuple[object, object]] = {
        name: (expectation.device.get(name), hard.get(name)) for name in SAME
    }
    pairs["suite"] = (expectation.suite_hash[:12], head.suite_hash[:12])
    ours, theirs = to_builtins(head.contract), to_builtins(expectation.contract)
    pairs |= {f"contract {name}": (theirs.get(name), ours.get(name)) for name in ours}
    differing = [f"{n} was {a} and is {b}" for n, (a, b) in pairs.items() if a != b]
    if differing:
        raise CannotMeasure(
            f"the expectation is of another measurement: {', '.join(differing[:4])}", HINT
        )


def shifts_of(
    grid: Grid, expectation: Expectation, scatter: NDArray[Any], rule: FleetRule
) -> tuple[Shift, ...]:
    """Return the shift of each test of *grid*, whose noise between devices is *scatter*."""
    import numpy
    from scipy.special import stdtrit

    middles = median(grid.logs, 0)
    expected = numpy.array([math.log(expectation.times_s.get(c, math.nan)) for c in grid.cases])
    differences = middles - expected
    critical = -float(stdtrit(max(1, expectation.units - 1), rule.alpha / max(1, len(grid.tests))))
    shifts = []
    for i, test in enumerate(grid.tests):
        shift = float(median(differences[grid.test_of_case == i][None, :], 1)[0])
        before = expectation.scatter.get(test, 0.0)
        noise = max(before, float(scatter[i]) if len(grid.units) > 2 else 0.0)
        error = MEDIAN_ERROR * noise * math.sqrt(1 / len(grid.units) + 1 / expectation.units)
        slow = shift > max(critical * error, math.log1p(rule.margin))
        shifts.append(Shift(test, shift, slow))
    return tuple(shifts)
