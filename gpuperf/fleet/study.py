"""Judge a fleet: its completeness, its common conditions, then the times of its devices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from gpuperf.errors import UsageError
from gpuperf.fleet.collection import Collection
from gpuperf.fleet.expectation import Expectation, Shift, refuse_other, shifts_of
from gpuperf.fleet.grid import Failure, Grid, Unit, grid_of
from gpuperf.fleet.pairs import PairJudgement, judge_pairs
from gpuperf.fleet.presence import MOST_NAMED, UNEQUAL, Fault, faults_of, sound_shards
from gpuperf.fleet.rule import (
    ALL,
    LEAST_PROCESSES,
    LEAST_UNITS,
    FleetRule,
    Scores,
    judge_processes,
    median,
    slowness_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Outcome = Literal["good", "bad", "inconclusive", "incomplete", "not comparable"]
EXIT_CODES: dict[Outcome, int] = {
    "good": 0,
    "bad": 1,
    "not comparable": 3,
    "inconclusive": 4,
    "incomplete": 4,
}
NO_PEERS = "two devices or fewer have no peers: give --expectation FILE, or judge more hosts"
FEW_PROCESSES = (
    f"fewer than {LEAST_PROCESSES} processes do not show the noise between processes, so no device "
    "is judged as slow: measure with more --processes"
)
MOSTLY = 0.5  # share of a test's measurements with another program above which that is the reason
BUSY = "another program ran on it"
NO_EXPECTATION = "no --expectation was given, so a fleet that is slow as a whole is not detected"


@dataclass(frozen=True)
class Bad:
    """A device that is slow or fails in a test: `slower` is the fraction by which it is slower than
    its peers, and `clock` its SM clock less the peers', as a fraction; None if unknown."""

    unit: Unit
    test: str
    slower: float | None = None
    p: float | None = None
    clock: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Summary:
    """A test over all devices: the noise between them, the slowdown that is detected, and how much
    slower the fleet is than expected, as fractions; None if unknown."""

    test: str
    cases: int
    scatter: float
    detectable: float
    shift: float | None = None
    slow: bool = False


@dataclass(frozen=True)
class Judgement:
    """What the shards of a fleet say of it.

    `slowness` has a line for each of `units` and a column for each of `tests`, as fractions; NaN
    marks a test without a time. `reasons` say why the outcome is not good.
    """

    outcome: Outcome
    expected: tuple[str, ...]
    judged: int
    rows: int
    device: str
    rule: FleetRule
    faults: tuple[Fault, ...] = ()
    bad: tuple[Bad, ...] = ()
    tests: tuple[Summary, ...] = ()
    units: tuple[Unit, ...] = ()
    slowness: NDArray[Any] | None = None
    pairs: PairJudgement | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 good, 1 bad, 3 not comparable, 4 inconclusive or incomplete."""
        return EXIT_CODES[self.outcome]


def judge_fleet(
    collection: Collection,
    rule: FleetRule,
    allowed: Sequence[str] = (),
    expectation: Expectation | None = None,
    one_machine: bool = False,
) -> Judgement:
    """Judge *collection*, whose expected hosts are known.

    Raises: UsageError for unknown expected hosts; CannotMeasure for an expectation of something
    else.
    """
    if collection.expected is None:
        raise UsageError(
            "the hosts that the fleet must have are not known, so a lost shard is not detected",
            "--hosts a,b,c, or --hosts @hosts.txt with one host a line",
        )
    faults = tuple(faults_of(collection, allowed, one_machine))
    shards = sound_shards(collection, faults)
    notes = [f"the shard of {host} was read twice, and counts once" for host in collection.repeated]
    known = Judgement(
        "incomplete",
        collection.expected.hosts,
        len({shard.head.host for shard in shards}),
        sum(shard.rows for shard in shards),
        str(shards[0].head.devices[0].hard.get("product", "")) if shards else "",
        rule,
        faults,
    )
    if not shards or any(fault.kind == UNEQUAL for fault in faults):
        return _concluded(known, notes)
    if any(shard.head.peer for shard in shards):
        pairs = judge_pairs(shards, known.expected, rule)
        known = replace(known, pairs=pairs)
        shards = tuple(shard for shard in shards if not shard.head.peer)
    if not shards:
        return _concluded(known, notes)
    if expectation is not None:
        refuse_other(expectation, shards[0].head)
    else:
        notes.append(NO_EXPECTATION)
    return _judge_times(known, grid_of(shards), expectation, notes)


def scored(grid: Grid, rule: FleetRule) -> Scores:
    """Return the scores of the devices of *grid*."""
    return judge_processes(grid.processes, grid.test_of_case, len(grid.tests), rule)


def _judge_times(
    known: Judgement, grid: Grid, expectation: Expectation | None, notes: list[str]
) -> Judgement:
    import numpy

    scores = scored(grid, known.rule)
    shifts: dict[str, Shift] = {}
    if expectation is not None:
        shifts = {s.test: s for s in shifts_of(grid, expectation, scores.scatter, known.rule)}
    alone = len(grid.units) < LEAST_UNITS
    bad = [] if alone else list(_slow_units(grid, scores, known.rule))
    bad += _failed_units(grid)
    if alone:
        notes.append(NO_PEERS)
    if grid.processes.shape[2] < LEAST_PROCESSES:
        notes.append(FEW_PROCESSES)
    judged = replace(
        known,
        bad=tuple(bad),
        tests=tuple(_summaries(grid, scores, shifts)),
        units=grid.units,
        slowness=numpy.expm1(scores.slowness),
    )
    return _concluded(judged, notes, alone and expectation is None)


def _slow_units(grid: Grid, scores: Scores, rule: FleetRule) -> Iterator[Bad]:
    """Yield each slow device once for each test, the slowest first.

    A device that is slow in all tests is one finding, beside the tests in which it is slower still.
    """
    import numpy

    names = (*grid.tests, ALL)
    slow = scores.slow(rule)
    clocks, shared = _clocks(grid), _shared(grid)
    found = [(unit, test) for unit, test in zip(*numpy.nonzero(slow), strict=True)]
    found.sort(key=lambda place: -scores.slowness[place])
    for unit, test in found:
        clock = clocks[unit, test]
        yield Bad(
            grid.units[unit],
            names[test],
            math.expm1(scores.slowness[unit, test]),
            float(scores.p[unit, test]),
            float(clock) if math.isfinite(clock) else None,
            BUSY if shared[unit, test] > max(MOSTLY, median(shared, 0)[test]) else "",
        )


def _clocks(grid: Grid) -> NDArray[Any]:
    """Return the SM clock of each unit in each test, and in all, less that of the peers."""
    import numpy

    if not numpy.isfinite(grid.clock_hz).any():
        return numpy.full((len(grid.units), len(grid.tests) + 1), math.nan)
    with numpy.errstate(invalid="ignore", divide="ignore"):
        relative = slowness_of(numpy.log(grid.clock_hz), grid.test_of_case, len(grid.tests))
    return numpy.asarray(numpy.expm1(relative))


def _shared(grid: Grid) -> NDArray[Any]:
    """Return the share of the measurements of each unit in which another program was on it, in each
    test and in all."""
    import numpy

    tests = [grid.shared[:, grid.test_of_case == test] for test in range(len(grid.tests))]
    return numpy.column_stack([each.mean(axis=1) for each in (*tests, grid.shared)])


def _failed_units(grid: Grid) -> Iterator[Bad]:
    """Yield devices on which a case failed that most devices have measured."""
    by_case = Counter(failure.case for failure in grid.failures)
    first: dict[tuple[int, str], Failure] = {}
    for failure in grid.failures:
        if 2 * by_case[failure.case] <= len(grid.units):
            test = grid.tests[grid.test_of_case[failure.case]]
            first.setdefault((failure.unit, test), failure)
    for (unit, test), failure in first.items():
        reason = f"{grid.cases[failure.case]}: {failure.status}"
        reason += f", {failure.reason}" if failure.reason else ""
        yield Bad(grid.units[unit], test, reason=reason)


def _summaries(grid: Grid, scores: Scores, shifts: dict[str, Shift]) -> Iterator[Summary]:
    import numpy

    timed = numpy.isfinite(median(grid.logs, 0))
    for i, test in enumerate((*grid.tests, ALL)):
        cases = timed if test == ALL else timed & (grid.test_of_case == i)
        shift = shifts.get(test)
        known = shift is not None and math.isfinite(shift.shift)
        yield Summary(
            test,
            int(cases.sum()),
            math.expm1(min(scores.scatter[i], 30.0)),
            math.expm1(min(scores.detectable[i], 30.0)),
            math.expm1(shift.shift) if shift is not None and known else None,
            shift.slow if shift is not None else False,
        )


def _concluded(known: Judgement, notes: Sequence[str], alone: bool = False) -> Judgement:
    """Return *known* with its outcome, and the reasons for it: the gravest is the outcome."""
    reasons = list(_reasons(known, alone))
    order: tuple[Outcome, ...] = ("not comparable", "incomplete", "bad", "inconclusive")
    outcomes = {outcome for outcome, _ in reasons}
    outcome: Outcome = next((each for each in order if each in outcomes), "good")
    texts = tuple(text for _, text in sorted(reasons, key=lambda r: order.index(r[0])))
    return replace(known, outcome=outcome, reasons=texts, notes=tuple(notes))


def _reasons(known: Judgement, alone: bool) -> Iterator[tuple[Outcome, str]]:
    """Yield each outcome that is not good, with its reason."""
    differing = [fault for fault in known.faults if fault.kind == UNEQUAL]
    others = [fault for fault in known.faults if fault.kind != UNEQUAL]
    if differing:
        yield "not comparable", f"hosts differ in {_count(differing, 'fact')}; times not compared"
    if others:
        counts = Counter(fault.kind for fault in others)
        yield "incomplete", ", ".join(f"{n} {kind}" for kind, n in counts.items())
    if not known.judged:
        yield "incomplete", "no host can be judged"
    elif not differing and not known.pairs and not any(t.cases for t in known.tests):
        yield "not comparable", "no case has a time"
    if known.pairs is not None:
        yield from _reasons_of_pairs(known.pairs, known.rule)
    yield from _reasons_of_tests(known, alone)


def _reasons_of_tests(known: Judgement, alone: bool) -> Iterator[tuple[Outcome, str]]:
    hosts = {bad.unit.host for bad in known.bad}
    if hosts:
        yield "bad", f"{_count(sorted(hosts), 'host')} slow or failing"
    slow = [test.test for test in known.tests if test.slow]
    if slow:
        yield "bad", f"the whole fleet is slower than expected in {', '.join(slow[:MOST_NAMED])}"
    limit = known.rule.slow
    blind = [t.test for t in known.tests if t.cases and t.detectable > limit]
    if alone or (blind and not hosts and not slow):
        noisy = f"too much noise, or too few processes, in {', '.join(blind[:MOST_NAMED])}"
        which = "no device has peers" if alone else noisy
        yield "inconclusive", f"{which}: a slowdown of {limit * 100:g} % could be missed"


def _reasons_of_pairs(pairs: PairJudgement, rule: FleetRule) -> Iterator[tuple[Outcome, str]]:
    if pairs.missing:
        first = " with ".join(pairs.missing[0])
        yield "incomplete", f"{_count(pairs.missing, 'pair')} missing, {first} among them"
    if pairs.slow:
        parts = {part.hosts for part in pairs.slow}
        yield "bad", f"{_count(sorted(parts), 'link or host')} slow in tests of pairs"
    blind = [t.test for t in pairs.tests if t.detectable > math.log1p(rule.slow)]
    if blind and not pairs.slow:
        noisy = f"too much noise in pairs of {', '.join(blind[:MOST_NAMED])}"
        yield "inconclusive", f"{noisy}: a slow link could be missed"


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
