"""Does a gate go from two sides to the right verdict, and never to a pass that is none?"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from fake_sides import (
    OPENED,
    FakeSide,
    Heard,
    case_of,
    plan_of,
    shared_from,
    sides_in,
    suite_of,
    with_status,
)

from gpuperf.errors import CannotMeasure, Incomplete, UsageError
from gpuperf.gate.ab import gate_ab
from gpuperf.gate.plan import GatePlan, read_plan, write_plan
from gpuperf.gate.prime import GateRequest
from gpuperf.gate.project import Margin, Project
from gpuperf.gate.rule import Rule
from gpuperf.gate.schedule import order_of, shuffled
from gpuperf.gate.sides import LABELS, Label
from gpuperf.gate.verdict import GateReport, exit_code, read_report, recheck
from gpuperf.model.contract import Fingerprint
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.model.samples import Samples
from gpuperf.run.store import read_run
from gpuperf.run.suite import Entry


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))


def run(
    folder: Path,
    base: FakeSide | None = None,
    head: FakeSide | None = None,
    plan: GatePlan | None = None,
    heard: Heard | None = None,
    **more: object,
) -> GateReport:
    folder.mkdir(parents=True, exist_ok=True)
    launchers: Mapping[Label, FakeSide] = {
        "base": base or FakeSide(seed=1),
        "head": head or FakeSide(seed=2),
    }
    asked = GateRequest(plan or plan_of(), folder, **more)  # type: ignore[arg-type]
    return gate_ab(asked, sides_in(folder), launchers, heard or Heard())


def verdicts(report: GateReport) -> dict[str, str]:
    return {
        c.case.split("/")[0] + c.case.split("=")[1].split(",")[0]: c.judged.verdict
        for c in report.cases
    }


def test_nothing_changed_and_the_gate_passes(tmp_path: Path) -> None:
    heard = Heard()
    report = run(tmp_path, heard=heard)
    assert len(heard.begun) == heard.records
    assert {c.case for c in report.cases} <= set(heard.begun)
    assert report.outcome == "passed"
    assert exit_code(report) == 0
    assert len(report.cases) == 6
    assert set(verdicts(report).values()) <= {"UNCHANGED", "INCONCLUSIVE"}


def test_a_slower_case_is_red_and_the_only_one(tmp_path: Path) -> None:
    report = run(tmp_path, head=FakeSide(seed=2, slower={"op1/torch[n=64": 0.03}))
    assert report.outcome == "regressed"
    assert exit_code(report) == 1
    told = verdicts(report)
    assert told.pop("op164") == "REGRESSED"
    assert "REGRESSED" not in told.values()
    (case,) = [c for c in report.cases if c.judged.verdict == "REGRESSED"]
    assert case.judged.change == pytest.approx(0.03, abs=0.005)
    assert case.cause is not None


def test_an_injected_slowdown_is_caught_and_said(tmp_path: Path) -> None:
    name = case_of("op2", 128).id
    report = run(tmp_path, plan=plan_of(slower={name: 0.04}))
    assert [c.case for c in report.cases if c.judged.verdict == "REGRESSED"] == [name]
    assert any("slowed down by 4 %" in note for note in report.notes)


def test_a_faster_case_is_improved_and_no_failure(tmp_path: Path) -> None:
    report = run(tmp_path, head=FakeSide(seed=2, slower={"op1/torch[n=64": -0.05}))
    assert report.outcome == "passed"
    assert verdicts(report)["op164"] == "IMPROVED"


def test_a_sentinel_that_moved_is_a_contaminated_gate(tmp_path: Path) -> None:
    slower = {"copy/": 0.05, "op1/torch[n=64": 0.05}
    report = run(tmp_path, head=FakeSide(seed=2, slower=slower))
    assert report.outcome == "contaminated"
    assert exit_code(report) == 4
    assert "copy/torch" in report.reasons[0]


def test_a_margin_of_its_own_holds_for_the_cases_that_it_matches(tmp_path: Path) -> None:
    project = Project(margins=(Margin("op1/*", 0.1, "@kernels"), Margin("op2/*")))
    report = run(
        tmp_path, head=FakeSide(seed=2, slower={"op1": 0.04}), plan=plan_of(project=project)
    )
    assert report.outcome == "passed"
    assert {c.owner for c in report.cases if c.case.startswith("op1")} == {"@kernels"}


@pytest.mark.parametrize("pattern", ["opp1/*", "copy/*"])  # a sentinel is no case of the suite
def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path, pattern: str) -> None:
    project = Project(margins=(Margin(pattern, 0.1),))
    with pytest.raises(UsageError, match="no case matches"):
        run(tmp_path, plan=plan_of(project=project))


@pytest.mark.parametrize(
    "status", ["error", "wrong", "impossible", "crashed", "timeout", "oom", "skipped"]
)
def test_a_case_that_fails_on_the_head_alone_is_no_pass(tmp_path: Path, status: str) -> None:
    report = run(tmp_path, head=FakeSide(seed=2, change=with_status("op1/torch[n=64", status)))
    assert report.outcome == "not comparable"
    assert exit_code(report) == 3
    assert verdicts(report)["op164"] == "NOT_COMPARABLE"
    assert status in next(c.judged.reason for c in report.cases if c.judged.reason)


@pytest.mark.parametrize("status", ["oom", "skipped"])
def test_what_neither_side_can_run_is_left_out_and_said(tmp_path: Path, status: str) -> None:
    change = with_status("op1/", status)
    report = run(tmp_path, FakeSide(seed=1, change=change), FakeSide(seed=2, change=change))
    assert report.outcome == "passed"
    assert len(report.left_out) == 2
    assert len(report.cases) == 4


def test_a_case_that_fails_on_both_sides_is_no_pass(tmp_path: Path) -> None:
    change = with_status("op1/", "error")
    report = run(tmp_path, FakeSide(seed=1, change=change), FakeSide(seed=2, change=change))
    assert report.outcome == "not comparable"


def test_zero_cases_judged_is_no_pass(tmp_path: Path) -> None:
    change = with_status("op", "skipped")
    report = run(tmp_path, FakeSide(seed=1, change=change), FakeSide(seed=2, change=change))
    assert report.cases == ()
    assert report.outcome == "not comparable"
    assert "no case was judged" in report.reasons


def test_all_cases_failed_is_no_pass(tmp_path: Path) -> None:
    change = with_status("op", "crashed")
    report = run(tmp_path, FakeSide(seed=1, change=change), FakeSide(seed=2, change=change))
    assert exit_code(report) == 3


def test_a_case_on_one_side_only_is_no_pass(tmp_path: Path) -> None:
    head = FakeSide(seed=2, names=("copy", "matmul", "op0", "op1"))
    report = run(tmp_path, head=head)
    assert report.outcome == "not comparable"
    reasons = [c.judged.reason for c in report.cases if c.judged.verdict == "NOT_COMPARABLE"]
    assert len(reasons) == 2
    assert all(reason.startswith("only the base has it") for reason in reasons)


def test_a_case_that_crashes_in_one_pass_of_many_is_no_pass(tmp_path: Path) -> None:
    def once(record: Record, process: int) -> Record:
        if process == 4 and record.case.op == "op1":
            return replace(record, status="crashed", reason="once", times={}, primary="")
        return record

    report = run(tmp_path, head=FakeSide(seed=2, change=once))
    assert report.outcome == "not comparable"
    assert any("crashed: once" in c.judged.reason for c in report.cases)


@pytest.mark.parametrize("value", [0.0, -1e-6])
def test_a_time_that_is_none_is_no_pass(tmp_path: Path, value: float) -> None:
    def none(record: Record, process: int) -> Record:
        if record.case.op != "op1":
            return record
        return replace(record, times={"window": Samples((value,) * 5)})

    report = run(tmp_path, head=FakeSide(seed=2, change=none))
    assert exit_code(report) == 3


def test_a_workload_of_another_version_is_not_comparable(tmp_path: Path) -> None:
    def version(record: Record, process: int) -> Record:
        hard = {**record.fingerprint.hard, "workload_version": 2}
        return replace(record, fingerprint=Fingerprint(hard=hard))

    report = run(tmp_path, head=FakeSide(seed=2, change=version))
    assert exit_code(report) == 3
    assert "workload_version is None on the base and 2 on the head" in report.cases[0].judged.reason


def test_sides_on_two_devices_are_refused(tmp_path: Path) -> None:
    other = Opened(OPENED.device, Fingerprint(hard={"product": "another CPU"}))
    with pytest.raises(CannotMeasure, match="product is 'a CPU' on the base and 'another CPU'"):
        run(tmp_path, head=FakeSide(seed=2, opened=other))


def test_another_process_on_the_gpu_discards_the_pair_and_is_counted(tmp_path: Path) -> None:
    report = run(tmp_path, head=FakeSide(seed=2, change=shared_from(4, until=6)))
    assert report.outcome == "passed"
    assert [d.pair for d in report.discarded] == [1, 2]
    assert "other processes had a context on the GPU" in report.discarded[0].reason
    base = read_run(tmp_path / "base.jsonl")
    assert max(r.pass_index for r in base.records) >= 7


def test_a_device_that_is_shared_while_the_sides_are_primed_is_no_pass(tmp_path: Path) -> None:
    """A neighbour that holds memory would leave the large cases out of the whole gate."""
    with pytest.raises(
        Incomplete, match=r"other processes had a context on the GPU: \d+ while the head was primed"
    ):
        run(tmp_path, head=FakeSide(seed=2, change=shared_from(1)))


def test_a_gate_is_not_resumed_on_another_device_or_with_other_software(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, heard=Heard(interrupt=60))
    for hard, soft in (("another CPU", "2.13"), ("a CPU", "2.14")):
        opened = Opened(OPENED.device, Fingerprint(hard={"product": hard}, soft={"torch": soft}))
        sides = [FakeSide(seed=s, opened=opened) for s in (1, 2)]
        with pytest.raises(CannotMeasure, match=r"cannot be resumed: (product|torch) is"):
            run(tmp_path, *sides)


def test_one_id_of_two_sources_is_refused(tmp_path: Path) -> None:
    entries = (Entry("op0", "64"), Entry("./mine.py:op0", "64"))
    suite = replace(suite_of(), entries=entries)
    with pytest.raises(UsageError, match=r"is a case of \./mine\.py and of gpuperf\.kernels"):
        run(tmp_path, plan=plan_of(suite=suite))


def test_a_sentinel_in_the_suite_is_refused(tmp_path: Path) -> None:
    entries = (*suite_of().entries, Entry("copy", "768k", (), {"dtype": "fp32"}))
    with pytest.raises(UsageError, match="is a sentinel of every gate"):
        run(tmp_path, plan=plan_of(suite=replace(suite_of(), entries=entries)))


def test_a_sentinel_that_is_too_noisy_tells_nothing(tmp_path: Path) -> None:
    def loud(record: Record, process: int) -> Record:
        if record.case.op != "copy":
            return record
        wobble = 1 + 0.3 * ((process * 7919) % 13 - 6) / 6
        values = tuple(v * wobble for v in record.times["window"].values_s)
        return replace(record, times={"window": Samples(values)})

    report = run(tmp_path, head=FakeSide(seed=2, change=loud))
    assert report.outcome in ("inconclusive", "contaminated")
    assert "copy/torch" in report.reasons[0]


def test_ctrl_c_while_causes_are_sought_costs_no_verdict(tmp_path: Path) -> None:
    class Stops(Heard):
        def stage(self, name: str, records: int) -> None:
            if name == "causes":
                raise KeyboardInterrupt

    slower = FakeSide(seed=2, slower={"op1/torch[n=64": 0.05})
    report = run(tmp_path, head=slower, heard=Stops())
    assert report.outcome == "regressed"
    assert read_report(tmp_path / "verdict.json").outcome == "regressed"


def test_another_process_that_stays_ends_the_gate_and_is_no_pass(tmp_path: Path) -> None:
    report = run(tmp_path, head=FakeSide(seed=2, change=shared_from(3)))
    assert report.outcome == "incomplete"
    assert exit_code(report) == 4
    assert "pairs were disturbed" in report.reasons[0]


def test_noise_that_could_hide_a_slowdown_is_no_pass(tmp_path: Path) -> None:
    loud = [FakeSide(seed=s, between=0.05) for s in (1, 2)]
    report = run(tmp_path, *loud)
    assert report.outcome in ("inconclusive", "contaminated")
    assert exit_code(report) == 4


def test_an_interrupted_gate_goes_on_where_its_files_end(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", head=FakeSide(seed=2, slower={"op1/torch[n=64": 0.05}))
    heard = Heard(interrupt=60)
    folder = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        run(folder, head=FakeSide(seed=2, slower={"op1/torch[n=64": 0.05}), heard=heard)
    cut = read_report(folder / "verdict.json")
    assert cut.outcome == "incomplete"
    before = len(read_run(folder / "base.jsonl").records)
    assert before > 0
    report = run(folder, head=FakeSide(seed=2, slower={"op1/torch[n=64": 0.05}))
    assert report.outcome == whole.outcome == "regressed"
    assert len(read_run(folder / "base.jsonl").records) > before


def test_a_gate_that_was_killed_leaves_a_verdict_that_is_no_pass(tmp_path: Path) -> None:
    class Killed(Heard):
        def stage(self, name: str, records: int) -> None:
            if name.startswith("screen"):
                raise SystemExit(9)  # as if by SIGKILL: nothing more is written

    with pytest.raises(SystemExit):
        run(tmp_path, heard=Killed())
    report = read_report(tmp_path / "verdict.json")
    assert exit_code(report) == 4
    assert recheck(report).outcome == "incomplete"


def test_a_budget_that_is_spent_is_no_pass(tmp_path: Path) -> None:
    report = run(tmp_path, budget_s=0.0)
    assert report.outcome == "incomplete"
    assert "budget" in report.reasons[0]


def test_a_plan_whose_level_cannot_be_reached_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot make one of"):
        run(tmp_path, plan=plan_of(Rule(confirm_pairs=5, seed=1)))


def test_rerun_until_green_is_no_pass(tmp_path: Path) -> None:
    report = run(tmp_path / "again", earlier="regressed")
    assert report.outcome == "inconclusive"
    assert "an earlier gate of the same code was regressed" in report.reasons[-1]
    report = run(tmp_path / "overruled", earlier="regressed", overruled="the host was rebooted")
    assert report.outcome == "passed"
    assert report.overruled == "the host was rebooted"


def test_a_verdict_says_the_same_when_it_is_judged_again(tmp_path: Path) -> None:
    report = run(tmp_path, head=FakeSide(seed=2, slower={"op1/torch[n=64": 0.03}))
    again = recheck(read_report(tmp_path / "verdict.json"))
    assert again.outcome == report.outcome
    assert verdicts(again) == verdicts(report)


def test_a_verdict_that_was_edited_is_refused(tmp_path: Path) -> None:
    run(tmp_path, head=FakeSide(seed=2, slower={"op1/torch[n=64": 0.03}))
    path = tmp_path / "verdict.json"
    text = path.read_text()
    path.write_text(text.replace('"REGRESSED"', '"UNCHANGED"'))
    with pytest.raises(UsageError, match="its evidence says REGRESSED"):
        recheck(read_report(path))
    path.write_text(text.replace('"outcome":"regressed"', '"outcome":"passed"'))
    with pytest.raises(UsageError, match="the evidence says 'regressed'"):
        recheck(read_report(path))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"schema": 99}', "[" * 100_000])
def test_what_is_no_verdict_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "verdict.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        read_report(path)


def test_a_missing_verdict_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_report(tmp_path / "verdict.json")


def test_blocks_are_abba_or_baab_as_the_seed_has_it() -> None:
    orders = [[order_of(seed, pair) for pair in range(40)] for seed in range(5)]
    assert len({tuple(order) for order in orders}) == 5
    for order in orders:
        assert {sides[0] for sides in order} == set(LABELS)
        for first, second in zip(order[::2], order[1::2], strict=True):
            assert first == second[::-1]
    assert orders[0] == [order_of(0, pair) for pair in range(40)]


def test_the_cases_of_a_pair_are_in_one_order_and_of_the_next_in_another() -> None:
    cases = [case_of("op0", n) for n in range(1, 30)]
    orders = [tuple(c.id for c in shuffled(cases, 1, pair)) for pair in range(4)]
    assert len(set(orders)) == 4
    assert orders[0] == tuple(c.id for c in shuffled(cases, 1, 0))


def test_each_pass_is_a_fresh_process(tmp_path: Path) -> None:
    base, head = FakeSide(seed=1), FakeSide(seed=2)
    report = run(tmp_path, base, head)
    assert base.processes == report.pairs + 1  # and one that primes
    assert head.processes == report.pairs + 2  # which is told apart from the one that describes


def test_pairs_measure_what_is_judged_and_the_other_processes_all(tmp_path: Path) -> None:
    head = FakeSide(seed=2, slower={"op1": 0.05})
    run(tmp_path, head=head)
    brief = {number: {m.brief for n, m in head.asked if n == number} for number, _ in head.asked}
    first, *pairs, last = brief.values()
    assert first == last == {False}, "the first and the one that seeks causes"
    assert len(pairs) > Rule().screen_pairs
    assert all(each == {True} for each in pairs)


def test_the_suspicious_are_judged_on_their_own_pairs_alone(tmp_path: Path) -> None:
    report = run(tmp_path, head=FakeSide(seed=2, slower={"op1/torch[n=64": 0.03}))
    case = next(c for c in report.cases if c.judged.verdict == "REGRESSED")
    assert case.evidence is not None
    assert len(case.evidence.screen.base) == 6
    assert case.evidence.confirm is not None
    assert len(case.evidence.confirm.base) == 10  # of 20, as 3 % are beyond doubt
    assert not set(case.evidence.screen.base) & set(case.evidence.confirm.base)
    files = read_run(tmp_path / "head.jsonl").records
    confirmed = [r for r in files if r.pass_index >= 6]
    assert len({r.case.id for r in confirmed}) < 8  # and the sentinels


def test_a_plan_comes_back_as_it_was_written(tmp_path: Path) -> None:
    project = Project("ci", 0.03, (Margin("op1/*", 0.1, "@kernels"),))
    plan = plan_of(Rule(seed=7, floor_s=2e-7), project=project, base="main", slower={"a": 0.1})
    write_plan(plan, tmp_path)
    assert read_plan(tmp_path) == plan
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(tmp_path / "other")


def test_the_noise_of_a_gate_forecasts_the_next(tmp_path: Path) -> None:
    from gpuperf.gate.forecast import fitted, foreseen, minutes, stored_pace
    from gpuperf.run.noise import kept_noise

    report = run(tmp_path)
    names = [case.case for case in report.cases]
    noise = kept_noise(OPENED, report.contract)
    seen = foreseen(names, noise, Rule(), {})
    assert all(least is not None and 0.01 < least < 0.03 for least in seen.values())
    assert foreseen(["new"], noise, Rule(), {}) == {"new": None}
    target = 0.01 + 0.8 * (max(least or 0 for least in seen.values()) - 0.01)
    more = fitted(names, noise, Rule(), {}, target)
    assert more.confirm_pairs > 20
    assert all((least or 1) <= target for least in foreseen(names, noise, more, {}).values())
    pace = stored_pace(OPENED, names)
    assert pace is not None
    assert minutes(pace, Rule()) > 0


def test_a_verdict_is_json_of_plain_numbers(tmp_path: Path) -> None:
    run(tmp_path)
    found = json.loads((tmp_path / "verdict.json").read_text(), parse_constant=pytest.fail)
    assert found["schema"] == 1
    assert all(math.isfinite(c["judged"]["q"]) for c in islice(found["cases"], 5))
    assert suite_of().name == found["suite"]
