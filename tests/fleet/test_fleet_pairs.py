"""Does a tournament meet each pair once, and do its times name a link rather than its hosts?"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
from command_line import CommandLine
from synthetic_fleet import collected, shard

from gpuperf.fleet.pairs import Pair, PairTest, judge_test, tournament
from gpuperf.fleet.rule import FleetRule
from gpuperf.fleet.study import judge_fleet

RULE = FleetRule()
HOSTS = tuple(f"n{i}" for i in range(12))


@pytest.mark.parametrize("count", range(2, 18))
def test_each_pair_meets_once_and_no_host_twice_in_a_round(count: int) -> None:
    hosts = [f"n{i}" for i in range(count)]
    rounds = tournament(hosts)
    assert len(rounds) == count - 1 + count % 2
    assert all(len({h for pair in each for h in pair}) == 2 * len(each) for each in rounds)
    met = sorted(tuple(sorted(pair)) for each in rounds for pair in each)
    assert met == sorted(itertools.combinations(sorted(hosts), 2))


@pytest.mark.parametrize("hosts", [[], ["a"], ["a", "a"]])
def test_a_tournament_needs_two_hosts(hosts: list[str]) -> None:
    with pytest.raises(ValueError, match="two hosts or more"):
        tournament(hosts)


def judged(logs: Mapping[Pair, float]) -> PairTest:
    """Judge pairs with five processes, each of which scatters a little."""
    draw = numpy.random.default_rng(0)
    cube = {pair: log + abs(draw.normal(0, 0.001, 5)) for pair, log in logs.items()}
    return judge_test("t", cube, RULE)


NONE: Mapping[Any, float] = {}


def times(
    seed: int, links: Mapping[Pair, float] = NONE, hosts: Mapping[str, float] = NONE
) -> dict[Pair, float]:
    draw = random.Random(seed)
    return {
        (a, b): draw.gauss(0, 0.005) + links.get((a, b), 0) + hosts.get(a, 0) + hosts.get(b, 0)
        for a, b in itertools.combinations(HOSTS, 2)
    }


def test_a_slow_link_is_named_and_not_its_hosts() -> None:
    for seed in range(20):
        (part,) = judged(times(seed, links={("n2", "n5"): 0.1})).slow
        assert part.hosts == ("n2", "n5")
        assert part.slower == pytest.approx(0.1, abs=0.03)


def test_a_slow_host_is_named_and_not_its_links() -> None:
    for seed in range(20):
        (part,) = judged(times(seed, hosts={"n4": 0.1})).slow
        assert part.hosts == ("n4",)


def test_healthy_pairs_accuse_nobody() -> None:
    assert sum(bool(judged(times(seed)).slow) for seed in range(200)) <= 2


def test_noise_between_processes_makes_pairs_inconclusive() -> None:
    draw = numpy.random.default_rng(6)
    logs = {pair: draw.normal(0, 0.002, 5) for pair in itertools.combinations(HOSTS, 2)}
    for pair in logs:
        logs[pair] += 0.1 * (draw.random(5) < 0.3)
    logs["n1", "n4"] += 0.06
    test = judge_test("t", logs, RULE)
    assert (test.slow, test.detectable > 0.05) == ((), True)
    few = judge_test("t", {pair: of[:4] for pair, of in logs.items()}, RULE)
    assert (few.slow, few.detectable) == ((), float("inf"))


def shards(slow: Pair = ("", "")) -> list[bytes]:
    return [
        shard(a, {"all": 0.15} if {a, b} == set(slow) else {}, peer=b)
        for each in tournament(HOSTS[:8])
        for a, b in each
    ]


def test_the_judge_names_the_link_of_pair_shards() -> None:
    report = judge_fleet(collected(shards(("n1", "n6")), HOSTS[:8]), RULE)
    assert report.pairs is not None
    assert {part.hosts for part in report.pairs.slow} == {("n1", "n6")}
    assert (report.outcome, report.pairs.pairs) == ("bad", 28)
    assert judge_fleet(collected(shards(), HOSTS[:8]), RULE).outcome == "good"


def test_a_missing_pair_and_a_missing_host_are_incomplete() -> None:
    report = judge_fleet(collected(shards()[1:], HOSTS[:8]), RULE)
    assert report.outcome == "incomplete"
    assert report.reasons[0].startswith("1 pair missing")
    assert judge_fleet(collected(shards(), HOSTS[:9]), RULE).outcome == "incomplete"


def test_the_command_lists_the_rounds(tmp_path: Path) -> None:
    at = CommandLine.at(tmp_path)
    ended = at.within("fleet", "pairs", "--hosts", "a,b,c,d", "--format", "json")
    rows = json.loads(ended.out)
    assert (ended.code, len(rows)) == (0, 6)
    assert rows[0] == {"round": 1, "host": "a", "peer": "d"}
    assert at.within("fleet", "pairs", "--hosts", "a").code == 2
