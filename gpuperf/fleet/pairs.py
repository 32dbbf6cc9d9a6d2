"""Schedule tests of pairs of hosts as a tournament, and name slow links and hosts from them.

In each round of a round-robin tournament every host meets one other host; after n − 1 rounds (n for
an odd number of hosts, of which one rests) every pair has met once. The rounds follow the circle
method: one host stays, and the others move one place on.

The log time of a pair is modelled as the sum of both hosts and of the link between them. The part
of a host is the median over its pairs, so a slow link does not accuse its hosts, and a slow host
does not accuse its links.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuperf.fleet.grid import name_of_test
from gpuperf.fleet.rule import HEAVY, FleetRule, fastest, median, process_floor
from gpuperf.fleet.shard import Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pair = tuple[str, str]
LEAST_HOSTS = 4  # of three hosts, each pair shares its link with the rest of both hosts
ROUNDS = 20  # of the fit of hosts by medians, which settles in a few


@dataclass(frozen=True)
class SlowPart:
    """A slow link between two hosts, or a slow host (`hosts` has one name), in one test."""

    hosts: tuple[str, ...]
    test: str
    slower: float
    p: float


@dataclass(frozen=True)
class PairTest:
    """A test of pairs: its slow links and hosts, the slowest first, and the least log ratio of a
    link that is detected."""

    test: str
    slow: tuple[SlowPart, ...]
    detectable: float


@dataclass(frozen=True)
class PairJudgement:
    """What the tests of pairs say, with the number of pairs, and the pairs that are missing."""

    pairs: int
    missing: tuple[Pair, ...]
    tests: tuple[PairTest, ...]

    @property
    def slow(self) -> tuple[SlowPart, ...]:
        """Slow links and hosts of all tests."""
        return tuple(part for test in self.tests for part in test.slow)


def tournament(hosts: Sequence[str]) -> tuple[tuple[Pair, ...], ...]:
    """Return the rounds of a round-robin tournament of *hosts*: each pair once.

    The first host of a pair is the one that reports. Raises: ValueError for under two hosts or a
    name that is there twice.
    """
    if len(hosts) < 2 or len(set(hosts)) < len(hosts):
        raise ValueError("a tournament needs two hosts or more, each named once")
    ring: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    rounds = []
    for turn in range(len(ring) - 1):
        half = len(ring) // 2
        meets = zip(ring[:half], reversed(ring[half:]), strict=True)
        pairs = [(a, b) for a, b in meets if a is not None and b is not None]
        rounds.append(tuple(pairs if turn % 2 == 0 else [(b, a) for a, b in pairs]))
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return tuple(rounds)


def judge_pairs(shards: Sequence[Shard], hosts: Sequence[str], rule: FleetRule) -> PairJudgement:
    """Judge the shards of pairs among *shards*, of which each pair of *hosts* must be there."""
    shards = [shard for shard in shards if shard.head.peer]
    rounds = tournament(hosts) if len(hosts) > 1 else ()
    wanted = {_ordered(*pair) for each in rounds for pair in each}
    logs: dict[str, dict[Pair, NDArray[Any]]] = {}
    for shard in shards:
        pair = _ordered(shard.head.host, shard.head.peer)
        for test, of_processes in _logs_of(shard).items() if pair in wanted else ():
            logs.setdefault(test, {})[pair] = of_processes
    there = {_ordered(shard.head.host, shard.head.peer) for shard in shards}
    judged = [
        judge_test(test, of_pairs, rule, len(logs)) for test, of_pairs in sorted(logs.items())
    ]
    return PairJudgement(len(there & wanted), tuple(sorted(wanted - there)), tuple(judged))


def _ordered(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)


def _logs_of(shard: Shard) -> Mapping[str, NDArray[Any]]:
    """Return the log time of each process of *shard* in each test: the mean over its cases and
    devices, without those that have a process without a time."""
    import numpy

    rows: dict[str, list[NDArray[Any]]] = {}
    for code, case in enumerate(shard.cases):
        for device in shard.head.devices:
            here = (shard.case == code) & (shard.device == device.index)
            logs = numpy.log(shard.time_s[here][numpy.argsort(shard.process[here])])
            if numpy.isfinite(logs).all():
                rows.setdefault(name_of_test(case), []).append(logs)
    return {test: numpy.mean(logs, axis=0) for test, logs in rows.items()}


def judge_test(
    test: str, logs: Mapping[Pair, NDArray[Any]], rule: FleetRule, tests: int = 1
) -> PairTest:
    """Judge one test from the *logs* of the times of each pair's processes.

    *tests* is the number of tests over which the error rate of the rule is shared.
    """
    import numpy

    hosts = sorted({host for pair in logs for host in pair})
    if len(hosts) < LEAST_HOSTS:
        return PairTest(test, (), math.inf)
    cube = numpy.array(list(logs.values()))[:, None, :]
    times = fastest(cube)
    floor = float(process_floor(cube, times, numpy.zeros(1, int), 1)[0])
    parts, rest = _fit(dict(zip(logs, times[:, 0].tolist(), strict=True)), hosts)
    compared = tests * (len(hosts) + len(logs))
    least = max(floor, math.log1p(rule.margin))
    slow = [*_slow([(host,) for host in hosts], parts, test, rule, compared, least)]
    slow += _slow(list(logs), rest, test, rule, compared, least)
    slow.sort(key=lambda part: -part.slower)
    return PairTest(test, tuple(slow), _detectable(rest, rule, compared, least))


def _slow(
    names: Sequence[tuple[str, ...]],
    excess: NDArray[Any],
    test: str,
    rule: FleetRule,
    compared: int,
    least: float,
) -> Iterator[SlowPart]:
    """Yield those of *names* whose *excess* is over *least*, and improbable as noise."""
    from scipy.special import stdtr

    noise = _scatter(excess)
    for name, log in zip(names, excess.tolist(), strict=True):
        p = min(1.0, float(stdtr(HEAVY, -log / noise)) * compared)
        if p <= rule.alpha and log >= least:
            yield SlowPart(name, test, math.expm1(log), p)


def _detectable(rest: NDArray[Any], rule: FleetRule, compared: int, least: float) -> float:
    """Return the least log ratio of a link that is detected with the power of the rule."""
    from scipy.special import stdtrit

    noise = _scatter(rest)
    critical = -float(stdtrit(HEAVY, rule.alpha / compared)) * noise
    return max(critical, least) + float(stdtrit(HEAVY, rule.power)) * noise


def _fit(times: Mapping[Pair, float], hosts: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the part of each host and the rest of each pair, by medians in turn."""
    import numpy

    places = {host: i for i, host in enumerate(hosts)}
    ends = numpy.array([[places[a], places[b]] for a, b in times])
    rest = numpy.array(list(times.values())) - numpy.median(list(times.values()))
    parts = numpy.zeros(len(hosts))
    for _ in range(ROUNDS):
        step = numpy.array([numpy.median(rest[(ends == i).any(axis=1)]) for i in range(len(hosts))])
        step /= 2  # both hosts of a pair see the same rest
        parts += step
        rest -= step[ends].sum(axis=1)
    return parts - numpy.median(parts), rest - numpy.median(rest)


def _scatter(values: NDArray[Any]) -> float:
    """Return a robust standard deviation of *values*."""
    from gpuperf.fleet.rule import scatter_of

    return max(1e-9, float(scatter_of((values - median(values[:, None], 0))[:, None])[0]))
