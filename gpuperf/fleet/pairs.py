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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuperf.fleet.grid import name_of_test
from gpuperf.fleet.rule import FleetRule, fastest, median
from gpuperf.fleet.shard import Shard

if TYPE_CHECKING:
    from numpy.typing import NDArray

Pair = tuple[str, str]
LEAST_HOSTS = 4  # of three hosts, each pair shares its link with the rest of both hosts
ROUNDS = 20  # of the fit of hosts by medians, which settles in a few
HEAVY = 20.0  # degrees of freedom of t, as in the rule of hosts


@dataclass(frozen=True)
class SlowPart:
    """A slow link between two hosts, or a slow host (`hosts` has one name), in one test."""

    hosts: tuple[str, ...]
    test: str
    slower: float
    p: float


@dataclass(frozen=True)
class PairJudgement:
    """What the pair tests say: pairs that are missing, and slow links and hosts."""

    pairs: int
    missing: tuple[Pair, ...]
    slow: tuple[SlowPart, ...]


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
    times: dict[str, dict[Pair, list[float]]] = {}
    for shard in shards:
        for test, log in _logs_of(shard).items():
            pair = _ordered(shard.head.host, shard.head.peer)
            times.setdefault(test, {}).setdefault(pair, []).append(log)
    there = {_ordered(shard.head.host, shard.head.peer) for shard in shards}
    rounds = tournament(hosts) if len(hosts) > 1 else ()
    wanted = {_ordered(*pair) for each in rounds for pair in each}
    slow: list[SlowPart] = []
    for test, of_pairs in sorted(times.items()):
        measured = {p: min(logs) for p, logs in of_pairs.items() if p in wanted}
        slow += slow_parts(measured, test, rule, len(times))
    return PairJudgement(len(there & wanted), tuple(sorted(wanted - there)), tuple(slow))


def _ordered(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)


def _logs_of(shard: Shard) -> Mapping[str, float]:
    """Return the mean log time of each test of *shard*, over its cases and devices."""
    import numpy

    places: dict[str, list[int]] = {}
    for code, case in enumerate(shard.cases):
        places.setdefault(name_of_test(case), []).append(code)
    logs: dict[str, float] = {}
    for test, codes in places.items():
        means = []
        for code in codes:
            times = shard.time_s[shard.case == code]
            means.append(float(fastest(numpy.log(times)[None, :])[0]))
        known = [mean for mean in means if math.isfinite(mean)]
        if known:
            logs[test] = sum(known) / len(known)
    return logs


def slow_parts(
    times: Mapping[Pair, float], test: str, rule: FleetRule, tests: int = 1
) -> list[SlowPart]:
    """Return the hosts and links that are slow in the log *times* of pairs, the slowest first.

    *tests* is the number of tests over which the error rate of the rule is shared.
    """
    from scipy.special import stdtr

    hosts = sorted({host for pair in times for host in pair})
    if len(hosts) < LEAST_HOSTS:
        return []
    parts, rest = _fit(times, hosts)
    compared = tests * (len(hosts) + len(times))
    found = []
    noise = {1: _scatter(parts), 2: _scatter(rest)}
    named: list[tuple[tuple[str, ...], float]] = []
    named += [((host,), float(parts[i])) for i, host in enumerate(hosts)]
    named += [(pair, float(rest[i])) for i, pair in enumerate(times)]
    for names, excess in named:
        p = min(1.0, float(stdtr(HEAVY, -excess / noise[len(names)])) * compared)
        if p <= rule.alpha and excess >= math.log1p(rule.margin):
            found.append(SlowPart(names, test, math.expm1(excess), p))
    return sorted(found, key=lambda part: -part.slower)


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
