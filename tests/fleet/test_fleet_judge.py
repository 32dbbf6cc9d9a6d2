"""Does the judge name what is wrong, and nothing else?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import CommandLine
from synthetic_fleet import HARD, NAMES, SOFT, TESTS, collected, head, rows, shard, written

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.fleet.expectation import expectation_of, read_expectation, write_expectation
from gpuperf.fleet.grid import grid_of
from gpuperf.fleet.rule import ALL, FleetRule
from gpuperf.fleet.shard import encode_shard
from gpuperf.fleet.study import Judgement, judge_fleet, scored

RULE = FleetRule()


def judged(texts: Sequence[bytes], hosts: Sequence[str] = NAMES, **more: Any) -> Judgement:
    return judge_fleet(collected(texts, hosts), RULE, **more)


def fleet(changes: Mapping[str, dict[str, Any]] = {}, **common: Any) -> list[bytes]:
    """The shards of all hosts, with *changes* to some."""
    return [shard(name, **(common | changes.get(name, {}))) for name in NAMES]


def test_a_healthy_fleet_is_good() -> None:
    report = judged(fleet())
    assert (report.outcome, report.exit_code, report.faults, report.bad) == ("good", 0, (), ())
    assert (report.judged, report.rows) == (24, 24 * 45)
    assert [t.test for t in report.tests] == [*sorted(TESTS), ALL]
    assert all(0.001 < t.scatter < 0.01 and t.detectable < 0.05 for t in report.tests)


def test_a_slow_host_is_named_with_its_test() -> None:
    report = judged(fleet({"node07": {"slow": {"h2d/torch": 0.08}}}))
    assert (report.outcome, report.exit_code) == ("bad", 1)
    (bad,) = report.bad
    assert (bad.unit.host, bad.test) == ("node07", "h2d/torch")
    assert bad.slower == pytest.approx(0.08, abs=0.01)
    assert bad.p is not None and bad.p <= RULE.alpha


def test_a_host_that_is_slow_in_all_tests_is_named_once() -> None:
    report = judged(fleet({"node07": {"slow": {"all": 0.07}}, "node08": {"slow": {"all": 0.2}}}))
    assert {bad.unit.host for bad in report.bad} == {"node07", "node08"}
    assert ALL in {bad.test for bad in report.bad}
    assert report.reasons == ("2 hosts slow or failing",)


def test_one_slow_device_of_eight_accuses_its_host() -> None:
    slow = {"node03": {"slow": {(5, "matmul/torch"): 0.06}}}
    report = judged(fleet(slow, devices=8))
    assert {(bad.unit.host, bad.unit.device) for bad in report.bad} == {("node03", 5)}


def test_a_fast_host_is_not_bad() -> None:
    assert judged(fleet({"node07": {"slow": {"all": -0.1}}})).outcome == "good"


def test_a_slowdown_under_the_margin_is_tolerated() -> None:
    report = judged(fleet({"node07": {"slow": {"all": 0.01}}}, noise=0.0005))
    assert report.outcome == "good"


def test_a_noisy_fleet_is_inconclusive() -> None:
    report = judged(fleet(noise=0.2))
    assert (report.outcome, report.exit_code) == ("inconclusive", 4)
    assert "a slowdown of 5 % could be missed" in report.reasons[0]


def test_few_processes_are_inconclusive() -> None:
    report = judged(fleet({"node07": {"slow": {"all": 0.3}}}, processes=4))
    assert (report.outcome, report.bad) == ("inconclusive", ())
    assert "measure with more --processes" in report.notes[1]


def test_two_hosts_have_no_peers() -> None:
    report = judged(fleet()[:2], NAMES[:2])
    assert (report.outcome, report.bad) == ("inconclusive", ())


# The five faults: each is said, and none passes.


def test_a_lost_shard_is_missing() -> None:
    report = judged(fleet()[1:])
    assert (report.outcome, report.exit_code) == ("incomplete", 4)
    assert [(f.kind, f.host) for f in report.faults] == [("missing", "node00")]


def test_a_shard_of_nobody_is_unexpected() -> None:
    report = judged([*fleet(), shard("intruder")])
    assert report.outcome == "incomplete"
    assert [(f.kind, f.host) for f in report.faults] == [("unexpected", "intruder")]
    assert report.judged == 24


def test_an_intruder_does_not_keep_the_others_from_being_judged() -> None:
    texts = fleet({"node07": {"slow": {"all": 0.1}}})
    report = judged([*texts, shard("intruder", soft=SOFT | {"driver": "1"})])
    assert report.outcome == "incomplete"
    assert {bad.unit.host for bad in report.bad} == {"node07"}


def test_two_shards_of_a_host_are_doubled() -> None:
    report = judged([*fleet(), shard("node05", {"all": -0.2})])
    assert report.outcome == "incomplete"
    assert [f.message for f in report.faults] == ["node05 has 2 different shards"]
    assert "node05" not in {unit.host for unit in report.units}


def test_a_shard_that_is_read_twice_counts_once_and_does_not_stand_for_a_lost_one() -> None:
    texts = fleet()
    twice = judged([*texts, texts[3]])
    assert (twice.outcome, twice.rows) == ("good", 24 * 45)
    assert "the shard of node03 was read twice, and counts once" in twice.notes
    lost = judged([*texts[1:], texts[3]])
    assert [(f.kind, f.host) for f in lost.faults] == [("missing", "node00")]


def test_a_truncated_shard_is_said_and_its_host_missing() -> None:
    texts = fleet()
    report = judged([*texts[:-1], texts[-1][:2000]])
    assert report.outcome == "incomplete"
    assert [(f.kind, f.host) for f in report.faults] == [
        ("broken", "node23"),
        ("missing", "node23"),
    ]
    assert "truncated" in report.faults[0].message


def test_a_truncated_shard_beside_a_whole_one_of_its_host_is_still_said() -> None:
    texts = fleet()
    report = judged([*texts, texts[4][:2000]])
    assert (report.outcome, [f.kind for f in report.faults]) == ("incomplete", ["broken"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"soft": SOFT | {"driver": "570.1"}}, "node09 has driver 570.1, most have 580.95.05"),
        ({"hard": HARD | {"max_sm_clock_hz": 1.7e9}}, "node09 has max_sm_clock_hz"),
        ({"hard": HARD | {"power_limit_w": 600}}, "node09 has power_limit_w 600, most have 700"),
        ({"gpuperf": "0.2.0"}, "node09 has gpuperf 0.2.0, most have 0.1.0"),
        ({"suite_hash": "b" * 64}, "node09 has suite screen bbbbbbbbbbbb"),
        ({"devices": 2}, "node09 has devices 2, most have 1"),
        ({"processes": 4}, "node09 has processes 4, most have 5"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_hosts_that_differ_are_not_compared(change: dict[str, Any], sentence: str) -> None:
    report = judged(fleet({"node09": change, "node02": {"slow": {"all": 0.3}}}))
    assert (report.outcome, report.exit_code) == ("not comparable", 3)
    assert report.faults[0].message.startswith(sentence)
    assert (report.bad, report.slowness) == ((), None)


def test_a_fact_that_may_differ_is_allowed() -> None:
    texts = fleet({"node09": {"soft": SOFT | {"driver": "570.1"}}})
    assert judged(texts, allowed=["driver"]).outcome == "good"
    with pytest.raises(UsageError, match="--allow names 'drivers'"):
        judged(texts, allowed=["drivers"])


def test_hosts_with_other_cases_are_not_compared() -> None:
    of = msgspec.structs.replace(head("node00"), planned=45)
    other = [msgspec.structs.replace(row, case=f"x{row.case}") for row in rows(of)]
    report = judged([encode_shard(of, other), *fleet()[1:]])
    assert report.outcome == "not comparable"
    assert report.faults[0].message.startswith("node00 has cases 9, checksum")


def test_a_host_that_reports_the_name_of_another_is_said() -> None:
    report = judged(fleet({"node01": {"hostname": "node02.cluster.local"}}))
    assert report.outcome == "incomplete"
    assert [f.message for f in report.faults] == ["node01 reports the name of node02"]
    assert "node01" not in {unit.host for unit in report.units}


def test_a_machine_that_answers_for_two_hosts_is_said() -> None:
    same = {"machine": "one", "hostname": "node01"}
    report = judged(fleet({"node01": same, "node02": {"machine": "one", "hostname": "x"}}))
    assert report.outcome == "incomplete"
    assert {(f.kind, f.host) for f in report.faults} == {
        ("identity", "node01"),
        ("identity", "node02"),
    }
    assert "node01 and node02 are one machine" in report.faults[0].message


def test_two_machines_under_one_name_are_doubled() -> None:
    report = judged([*fleet(), shard("node05", machine="another")])
    assert [f.message for f in report.faults] == ["node05 has 2 different shards, of 2 machines"]


def test_a_stale_shard_does_not_stand_for_a_lost_one() -> None:
    from gpuperf.fleet.collection import collect
    from gpuperf.fleet.shard import Expected, parse_pieces

    texts = fleet({"node04": {"fleet": "yesterday"}}, fleet="today")
    pieces = [piece for text in texts for piece in parse_pieces(text, "a test")]
    report = judge_fleet(collect([*pieces, Expected(NAMES, "today")]), RULE)
    assert report.outcome == "incomplete"
    (fault,) = report.faults
    assert fault.message == "the shard of node04 is of yesterday, and not of today"
    unknown = judge_fleet(collect([*pieces, Expected(NAMES)]), RULE)
    assert [f.message for f in unknown.faults] == [fault.message]


def test_a_case_that_fails_on_one_host_accuses_it() -> None:
    of = head("node06")
    made = rows(of)
    made[4] = msgspec.structs.replace(made[4], status="wrong", time_s=None, reason="error 0.3")
    texts = fleet()
    report = judged([*texts[:6], encode_shard(of, made), *texts[7:]])
    (bad,) = report.bad
    assert bad.unit.host == "node06"
    assert bad.reason == "matmul/torch[n=4096]: wrong, error 0.3"


def test_a_case_that_fails_everywhere_accuses_nobody() -> None:
    texts = []
    for name in NAMES:
        of = head(name)
        texts.append(
            encode_shard(
                of,
                [
                    msgspec.structs.replace(r, status="skipped", time_s=None)
                    if r.case.startswith("h2d")
                    else r
                    for r in rows(of)
                ],
            )
        )
    report = judged(texts)
    assert (report.outcome, report.bad) == ("good", ())
    assert {t.test: t.cases for t in report.tests}["h2d/torch"] == 0


def test_a_fleet_without_any_time_is_not_comparable() -> None:
    texts = []
    for name in NAMES:
        of = head(name)
        texts.append(
            encode_shard(
                of, [msgspec.structs.replace(r, status="crashed", time_s=None) for r in rows(of)]
            )
        )
    assert judged(texts).outcome == "not comparable"


def test_the_expected_hosts_must_be_known() -> None:
    with pytest.raises(UsageError, match="the hosts that the fleet must have are not known"):
        judge_fleet(replace(collected(fleet()), expected=None), RULE)


# The expectation of a device.


def expected_of(texts: Sequence[bytes], path: Path) -> Path:
    shards = collected(texts).shards
    grid = grid_of(shards)
    write_expectation(expectation_of(grid, shards[0].head, scored(grid, RULE).scatter), path)
    return path


def test_a_uniformly_slow_fleet_fails_against_the_expectation(tmp_path: Path) -> None:
    stored = read_expectation(expected_of(fleet(), tmp_path / "e.json"))
    slow = fleet(slow={"matmul/torch": 0.06})
    assert judged(slow).outcome == "good"
    report = judged(slow, expectation=stored)
    assert (report.outcome, report.exit_code) == ("bad", 1)
    assert report.reasons == ("the whole fleet is slower than expected in matmul/torch",)
    assert judged(fleet(), expectation=stored).outcome == "good"
    assert judged(fleet(slow={"all": -0.1}), expectation=stored).outcome == "good"


def test_two_hosts_are_judged_by_the_expectation_alone(tmp_path: Path) -> None:
    stored = read_expectation(expected_of(fleet(), tmp_path / "e.json"))
    texts = [shard(name, slow={"all": 0.06}) for name in NAMES[:2]]
    assert judged(texts, NAMES[:2], expectation=stored).outcome == "bad"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hard": HARD | {"product": "NVIDIA H100"}}, "product was NVIDIA H200"),
        ({"suite_hash": "b" * 64}, "suite was aaaaaaaaaaaa"),
    ],
)
def test_an_expectation_of_something_else_is_refused(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    stored = read_expectation(expected_of(fleet(), tmp_path / "e.json"))
    with pytest.raises(CannotMeasure, match=sentence):
        judged(fleet(**change), expectation=stored)


@pytest.mark.parametrize("text", ["", "[]", '{"schema":1}', "[" * 100_000])
def test_a_file_that_is_no_expectation_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(UsageError, match="is no expectation"):
        read_expectation(tmp_path / "e.json")


# The command.


@pytest.fixture
def at(tmp_path: Path) -> CommandLine:
    texts = {name: shard(name) for name in NAMES}
    texts["node07"] = shard("node07", {"matmul/torch": 0.1})
    written(tmp_path / "shards", texts)
    return CommandLine.at(tmp_path)


def test_the_command_prints_the_bad_hosts_and_draws_them(at: CommandLine) -> None:
    ended = at.within("fleet", "judge", "shards", "--chart", "map.svg")
    assert ended.code == 1
    assert ended.out.startswith("BAD. 1 host slow or failing. 24 of 24 expected hosts judged")
    line = next(line for line in ended.out.splitlines() if line.startswith("node07"))
    assert "matmul/torch" in line
    drawn = (at.folder / "map.svg").read_text()
    assert "node07" in drawn
    assert "slower than the peers" in drawn


def test_the_exit_code_is_that_of_the_fleet_also_without_a_chart_or_a_reader(
    at: CommandLine,
) -> None:
    ended = at.within("fleet", "judge", "shards", "--chart", "nowhere/map.svg")
    assert ended.code == 1
    assert "no chart was written" in ended.err
    with at.start("fleet", "judge", "shards", "--format", "json") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 1


def test_every_format_has_the_bad_hosts(at: CommandLine) -> None:
    data = json.loads(at.within("fleet", "judge", "shards", "--format", "json").out)
    assert (data["outcome"], data["hosts_judged"]) == ("bad", 24)
    assert [bad["host"] for bad in data["bad"]] == ["node07"]
    assert len(data["units"]) == 24
    assert data["units"][7]["slower"]["matmul/torch"] == pytest.approx(0.1, abs=0.01)
    csv = at.within("fleet", "judge", "shards", "--format", "csv").out.splitlines()
    assert csv[0] == "host,device,test,slower,p,clock,reason"
    assert csv[1].startswith("node07,0,matmul/torch,0.")
    assert (
        "| node07 | 0 | <code>matmul/torch</code> | +"
        in at.within("fleet", "judge", "shards", "--format", "md").out
    )


def test_a_merged_file_is_judged_like_its_shards(at: CommandLine) -> None:
    at.within("fleet", "merge", "shards", "--out", "all.jsonl")
    one, other = (at.within("fleet", "judge", path) for path in ("shards", "all.jsonl"))
    assert one == other


def test_the_expectation_is_written_by_a_good_fleet_alone(at: CommandLine) -> None:
    refused = at.within("fleet", "expect", "shards", "--out", "e.json")
    assert refused.code == 4
    assert "the fleet is bad" in refused.err
    (at.folder / "shards" / "node07.jsonl").write_bytes(shard("node07"))
    made = at.within("fleet", "expect", "shards", "--out", "e.json")
    assert (made.code, made.out) == (0, "24 devices, 9 cases: e.json\n")
    ended = at.within("fleet", "judge", "shards", "--expectation", "e.json")
    assert ended.code == 0, ended.out


def test_an_option_that_is_given_twice_is_refused(at: CommandLine) -> None:
    ended = at.within("fleet", "judge", "shards", "--hosts", "a", "--hosts", "b")
    assert ended.code == 2
    assert "--hosts is given twice" in ended.err


def test_hostile_texts_reach_no_terminal_and_no_spreadsheet(tmp_path: Path) -> None:
    at = CommandLine.at(tmp_path)
    evil = "=cmd|' /C calc'!A0\x1b]0;x\x07"
    texts = {name: shard(name) for name in NAMES}
    texts["node03"] = shard("node03", soft=SOFT | {"driver": evil})
    written(tmp_path / "shards", texts)
    for form in ("table", "json", "csv", "md"):
        ended = at.within("fleet", "judge", "shards", "--format", form)
        assert ended.code == 3
        assert "\x1b" not in ended.out + ended.err
        assert "\x07" not in ended.out + ended.err
