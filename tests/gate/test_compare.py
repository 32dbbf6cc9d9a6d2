"""Are stored runs judged by what their processes tell, and refused where they do not compare?"""

from __future__ import annotations

import itertools
import math
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from fake_sides import DEVICE, case_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, false_discovery_control, ttest_ind
from synthetic_gate import CASES, CONTRACT, HERE, compare_runs, run_of, written

from gpuperf.errors import CannotMeasure, RunFileError, UnknownName, UsageError
from gpuperf.gate.baseline import Shelf
from gpuperf.gate.project import Margin, Project
from gpuperf.gate.rule import Rule, adjusted
from gpuperf.gate.stored import SESSION, Sets, judge_stored
from gpuperf.gate.verdict import exit_code, read_report, recheck, write_report
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.record import Kernel, Noise, Run, Telemetry
from gpuperf.model.samples import Samples
from gpuperf.run.store import read_run


def test_the_same_code_passes_and_a_slower_case_is_red() -> None:
    same = compare_runs(run_of(), run_of(seed=2), Rule(), 0.05)
    assert same.outcome == "passed"
    report = compare_runs(run_of(), run_of({CASES[1].id: 0.04}, seed=2), Rule(), 0.05)
    assert exit_code(report) == 1
    assert [c.case for c in report.cases if c.judged.verdict == "REGRESSED"] == [CASES[1].id]


def test_one_process_a_side_tells_nothing_without_known_noise() -> None:
    report = compare_runs(run_of(passes=1), run_of(passes=1, seed=2), Rule(), 0.05)
    assert report.outcome == "inconclusive"
    assert "--passes 6" in report.cases[0].judged.reason


def test_noise_that_earlier_processes_saw_serves_where_there_is_one_process() -> None:
    known = Noise(0.002, 0.002, 20)
    base = run_of(passes=1, noise=known)
    report = compare_runs(
        base, run_of({CASES[0].id: 0.05}, passes=1, seed=2, noise=known), Rule(), 0.05
    )
    told = {c.case: c.judged.verdict for c in report.cases}
    assert told[CASES[0].id] == "REGRESSED"
    assert list(told.values()).count("REGRESSED") == 1


def test_stored_runs_of_unchanged_code_are_seldom_red() -> None:
    """Each run is of a session of its own, that moved all its times by about 1 %."""
    draw = numpy.random.default_rng(5)
    reds, rule = 0, Rule(margin=SESSION)
    for _ in range(300):
        logs = draw.normal(0, 0.005, (50, 16)) + draw.normal(0, 0.002, (1, 16))
        logs[:, :8] += draw.normal(0, 0.01)
        logs[:, 8:] += draw.normal(0, 0.01)
        sets = {
            str(i): Sets(tuple(numpy.exp(row[:8])), tuple(numpy.exp(row[8:])))
            for i, row in enumerate(logs)
        }
        reds += any(j.verdict == "REGRESSED" for j in judge_stored(sets, rule).values())
    assert binomtest(reds, 300, alternative="less").proportion_ci(0.95).high <= 0.02, reds


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"timer": "events"}, "timer is 'wall' and 'events'"),
        ({"cache": "hot", "data": "zeros"}, "cache is 'cold' and 'hot'; data is 'randn' and"),
        ({"gap_s": 0.5}, "gap_s is 0.0 and 0.5"),
    ],
)
def test_a_baseline_of_another_contract_is_refused_by_every_field(
    change: dict[str, object], told: str
) -> None:
    other = replace(CONTRACT, **change)  # type: ignore[arg-type]
    with pytest.raises(CannotMeasure, match=told) as error:
        compare_runs(run_of(), run_of(contract=other), Rule(), 0.05)
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("fact", "value"),
    [("product", "another"), ("power_limit_w", 400.0), ("max_sm_clock_hz", 1e9), ("mig", True)],
)
def test_a_baseline_from_another_clock_or_gpu_is_refused(fact: str, value: object) -> None:
    hard = {**HERE.hard, fact: value}
    with pytest.raises(CannotMeasure, match=f"{fact} is .* on the head"):
        compare_runs(run_of(), run_of(fingerprint=replace(HERE, hard=hard)), Rule(), 0.05)  # type: ignore[arg-type]


def test_software_that_differs_is_said() -> None:
    other = replace(HERE, soft={"torch": "2.14"})
    report = compare_runs(run_of(), run_of(seed=2, fingerprint=other), Rule(), 0.05)
    assert "torch is '2.13' on the base and '2.14' on the head" in report.notes


def test_runs_of_two_hosts_are_advice_and_no_verdict() -> None:
    other = replace(HERE, live={"host": "two"})
    head = run_of({CASES[0].id: 0.2}, seed=2, fingerprint=other)
    report = compare_runs(run_of(), head, Rule(), 0.05)
    assert exit_code(report) == 4
    assert "two hosts" in report.reasons[0]
    assert any(c.judged.verdict == "REGRESSED" for c in report.cases)


def test_runs_of_a_cpu_that_was_shared_are_advice_and_no_verdict() -> None:
    def loaded(run: Run, *loads: float) -> Run:
        shares = itertools.cycle(loads)
        return replace(
            run,
            records=tuple(
                replace(r, telemetry=Telemetry(other_load=next(shares))) for r in run.records
            ),
        )

    head = run_of({CASES[0].id: 0.2}, seed=2)
    alone = compare_runs(run_of(), loaded(head, 0.1, 0.9, 0.1), Rule(), 0.05)
    assert exit_code(alone) == 1
    shared = compare_runs(run_of(), loaded(head, 0.9, 0.9, 0.1), Rule(), 0.05)
    assert exit_code(shared) == 4
    said = "other processes computed beside 16 of 24 cases of the head: this is advice"
    assert said in shared.reasons[0]


def test_scatter_of_earlier_processes_is_said_to_be_that() -> None:
    known = Noise(0.002, 0.001, 8)
    one = compare_runs(run_of(passes=1, noise=known), run_of(seed=2, noise=known), Rule(), 0.05)
    said = "3 of 3 cases have 1 and 8 processes: their scatter is that of earlier ones"
    assert f"{said}; --passes 6 measures it" in one.notes
    many = compare_runs(run_of(), run_of(seed=2), Rule(), 0.05)
    assert not any("scatter" in note for note in many.notes)


def test_a_case_on_one_side_only_is_no_pass() -> None:
    report = compare_runs(run_of(), run_of(seed=2, cases=CASES[:2]), Rule(), 0.05)
    assert exit_code(report) == 3
    assert report.cases[-1].judged.reason == "the head has no such case"


def test_a_planned_case_that_was_never_measured_is_no_pass() -> None:
    head = run_of(seed=2)
    kept = tuple(r for r in head.records if r.case.id != CASES[2].id)
    report = compare_runs(run_of(), replace(head, records=kept), Rule(), 0.05)
    assert exit_code(report) == 3
    assert report.cases[-1].judged.reason == "the head lacks it"


def test_zero_cases_judged_is_no_pass() -> None:
    report = compare_runs(run_of(cases=()), run_of(cases=(), seed=2), Rule(), 0.05)
    assert exit_code(report) == 3


def test_processes_that_were_disturbed_do_not_count() -> None:
    head = run_of(seed=2, passes=9)
    shared = Telemetry(other_processes=2)
    records = tuple(
        replace(r, telemetry=shared, times={"wall": Samples((1.0,))}) if r.pass_index == 3 else r
        for r in head.records
    )
    report = compare_runs(run_of(), replace(head, records=records), Rule(), 0.05)
    assert report.outcome == "passed"
    assert len(report.discarded) == 3


def test_a_margin_of_its_own_holds_in_stored_runs_too() -> None:
    head = run_of({CASES[1].id: 0.04}, seed=2)
    project = Project(margins=(Margin("op0/*n=128,*", 0.1, "@kernels"),))
    report = compare_runs(run_of(), head, Rule(), 0.05, project)
    assert report.outcome == "passed"
    assert next(c.owner for c in report.cases if c.case == CASES[1].id) == "@kernels"


def test_a_margin_of_a_project_never_undoes_the_guard_against_the_session() -> None:
    """Margins of 1 % are written for pairs; a session alone moves all times of a run by as much."""
    draw = numpy.random.default_rng(5)
    reds, rule = 0, Rule(margin=SESSION)
    for _ in range(100):
        logs = draw.normal(0, 0.002, (20, 16)) + numpy.repeat(draw.normal(0, 0.01, 2), 8)
        sets = {
            str(i): Sets(tuple(numpy.exp(row[:8])), tuple(numpy.exp(row[8:])), margin=0.01)
            for i, row in enumerate(logs)
        }
        reds += any(j.verdict == "REGRESSED" for j in judge_stored(sets, rule).values())
    assert reds <= 3  # of 100: four fifths, were the margins 1 %
    project = Project(margins=(Margin("op0/*n=128,*", 0.01),))
    head = run_of(dict.fromkeys([case.id for case in CASES], 0.02), seed=2)
    report = compare_runs(run_of(), head, rule, 0.1, project)
    assert exit_code(report) == 0
    assert any("1 margins of gpuperf.toml are under 4 %" in note for note in report.notes)


def test_a_faster_run_is_improved_and_no_failure() -> None:
    report = compare_runs(run_of(), run_of({CASES[1].id: -0.05}, seed=2), Rule(), 0.05)
    assert exit_code(report) == 0
    assert [c.case for c in report.cases if c.judged.verdict == "IMPROVED"] == [CASES[1].id]
    (faster,) = [c.judged for c in report.cases if c.judged.verdict == "IMPROVED"]
    assert faster.change == pytest.approx(-0.05, abs=0.005)


def times(*logs: float) -> tuple[float, ...]:
    return tuple(1e-4 * math.exp(log) for log in logs)


# Of eight processes of the base two met a mode that is 8 % slower.
SLOW_MODE = Sets(
    times(0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.08, 0.081),
    times(*(0.05 + 0.001 * i for i in range(8))),
)


def test_a_slow_mode_of_the_base_hides_no_slowdown_of_a_stored_run() -> None:
    """Welch's test alone finds nothing there; the lower half is as fast as ever."""
    rule = Rule()
    base, head = (numpy.log(side) for side in (SLOW_MODE.base, SLOW_MODE.head))
    welch = ttest_ind(head - math.log1p(0.01), base, equal_var=False, alternative="greater").pvalue
    assert welch > rule.alpha
    assert judge_stored({"a": SLOW_MODE}, rule)["a"].verdict == "REGRESSED"


def lower_half(logs: Sequence[float]) -> float:
    return math.fsum(sorted(logs)[: (len(logs) + 1) // 2]) / ((len(logs) + 1) // 2)


def p_by_all_exchanges(head: Sequence[float], base: Sequence[float]) -> float:
    """The share of all ways to deal the times to two sides of six that differ by as much."""
    both, seen = [*head, *base], lower_half(head) - lower_half(base)
    dealt = [
        lower_half([both[i] for i in chosen])
        - lower_half([both[i] for i in range(12) if i not in chosen])
        for chosen in itertools.combinations(range(12), 6)
    ]
    return sum(difference >= seen - 1e-12 for difference in dealt) / len(dealt)


@pytest.mark.parametrize(
    ("base", "head", "by"),
    [
        ((0.0, 0.001, 0.002, 0.003, 0.004, 0.08), (0.05, 0.051, 0.053, 0.056, 0.06, 0.09), "mode"),
        ((0.0, 0.001, 0.002, 0.003, 0.004, 0.005), (0.05, 0.051, 0.052, 0.053, 0.054, 0.055), "t"),
    ],
)
def test_p_of_a_stored_case_is_twice_the_smaller_of_both_tests(
    base: tuple[float, ...], head: tuple[float, ...], by: str
) -> None:
    moved = [log - math.log1p(0.01) for log in head]
    by_t = float(ttest_ind(moved, base, equal_var=False, alternative="greater").pvalue)
    by_mode = p_by_all_exchanges(moved, base)
    assert (by_mode < by_t) == (by == "mode")
    judged = judge_stored({"a": Sets(times(*base), times(*head))}, Rule())["a"]
    assert judged.p == pytest.approx(2 * min(by_t, by_mode))


def test_a_regressed_case_of_a_stored_run_has_its_times_and_its_cause() -> None:
    cost = Cost((Flops(10**6, "elementwise", "fp32"),), (Bytes(10**6, 10**6),))

    def costed(run: Run) -> Run:
        kernels = (Kernel("a_kernel"),)
        return replace(
            run, records=tuple(replace(r, cost=cost, kernels=kernels) for r in run.records)
        )

    head = costed(run_of({CASES[1].id: 0.06}, seed=2))
    report = compare_runs(costed(run_of()), head, Rule(), 0.05)
    (case,) = [c for c in report.cases if c.judged.verdict == "REGRESSED"]
    assert case.cause is not None
    assert case.cause.kind == "lower compute rate"
    assert case.notes == ("same kernels, same launch configuration on both sides",)
    assert case.base_s == pytest.approx(1e-4, rel=0.01)
    assert case.head_s == pytest.approx(1.06e-4, rel=0.01)
    assert all(c.cause is None for c in report.cases if c is not case)


def test_runs_that_name_no_host_are_advice_and_no_verdict() -> None:
    """Two unknown hosts are not one."""
    unknown = replace(HERE, live={})
    base, head = (run_of(seed=seed, fingerprint=unknown) for seed in (1, 2))
    report = compare_runs(base, head, Rule(), 0.05)
    assert (report.outcome, exit_code(report)) == ("inconclusive", 4)
    assert "do not say whether they come from one host" in report.reasons[0]


def test_lines_that_cannot_be_read_are_no_pass(tmp_path: Path) -> None:
    path = written(run_of(seed=2), tmp_path / "head.jsonl")
    text = path.read_text().replace('"values_s":[0', '"values_s":[NaN,0', 1)
    path.write_text(text)
    report = compare_runs(run_of(), read_run(path), Rule(), 0.05)
    assert exit_code(report) == 4
    assert "1 lines cannot be read" in report.reasons[0]


def test_the_verdict_on_stored_runs_says_the_same_when_judged_again(tmp_path: Path) -> None:
    report = compare_runs(run_of(), run_of({CASES[1].id: 0.04}, seed=2), Rule(), 0.05)
    write_report(report, tmp_path / "verdict.json")
    assert recheck(read_report(tmp_path / "verdict.json")).outcome == "regressed"


def test_a_regressed_run_becomes_no_baseline(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")
    first = written(run_of(), tmp_path / "first.jsonl")
    slower = written(run_of({CASES[1].id: 0.04}, seed=2), tmp_path / "slower.jsonl")
    shelf.set("main", first)
    with pytest.raises(UsageError, match="against the last one it is regressed"):
        shelf.set("main", slower)
    made = shelf.set("main", slower, reason="accepted: exact softmax")
    assert made.reason == "accepted: exact softmax"
    assert [b.run for b in shelf.all()] == ["run-2"]


@pytest.mark.parametrize("status", ["error", "wrong", "impossible", "crashed", "timeout"])
def test_a_run_with_a_failed_case_becomes_no_baseline(tmp_path: Path, status: str) -> None:
    run = run_of()
    bad = replace(run.records[0], status=status, times={}, primary="")  # type: ignore[arg-type]
    path = written(replace(run, records=(bad, *run.records[1:])), tmp_path / "run.jsonl")
    with pytest.raises(UsageError, match=f"is {status}"):
        Shelf(tmp_path).set("main", path)


def test_a_run_whose_gate_was_red_becomes_no_baseline(tmp_path: Path) -> None:
    path = written(run_of(), tmp_path / "head.jsonl")
    report = compare_runs(run_of(), run_of({CASES[1].id: 0.04}, seed=2), Rule(), 0.05)
    write_report(report, tmp_path / "verdict.json")
    with pytest.raises(UsageError, match="its gate is regressed"):
        Shelf(tmp_path / "shelf").set("main", path)


def test_a_baseline_is_found_by_device_software_and_contract(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")
    shelf.set("main", written(run_of(), tmp_path / "a.jsonl"))
    found, run = shelf.find("main", run_of(seed=2).header)
    assert found.run == run.header.run == "run-1"
    newer = replace(HERE, soft={"torch": "2.14"})
    with pytest.raises(
        CannotMeasure, match=r"torch 2\.14; the latest was measured under torch 2\.13"
    ):
        shelf.find("main", run_of(fingerprint=newer).header)
    hot = run_of(contract=replace(CONTRACT, cache="hot")).header
    with pytest.raises(CannotMeasure, match="cache is 'cold' and 'hot'"):
        shelf.find("main", hot)


def test_no_baseline_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="there is no baseline 'main'") as error:
        Shelf(tmp_path).find("main", run_of().header)
    assert error.value.exit_code == 3


def test_an_expired_baseline_holds_no_longer(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")
    shelf.set("main", written(run_of(), tmp_path / "a.jsonl"))
    shelf.expire("main")
    with pytest.raises(CannotMeasure, match="expired on"):
        shelf.find("main", run_of(seed=2).header)
    with pytest.raises(UnknownName, match="did you mean 'main'"):
        shelf.expire("mian")


@pytest.mark.parametrize("name", ["../evil", "", "a/b", "a\nb", "x" * 100])
def test_a_baselines_name_is_no_path(tmp_path: Path, name: str) -> None:
    path = written(run_of(), tmp_path / "a.jsonl")
    with pytest.raises(UsageError, match="is not a name of a baseline"):
        Shelf(tmp_path / "shelf").set(name, path)


def test_a_file_named_in_a_strangers_index_is_looked_for_in_the_folder_only(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")
    shelf.set("main", written(run_of(), tmp_path / "a.jsonl"))
    index = tmp_path / "shelf" / "baselines.json"
    index.write_text(index.read_text().replace('"file":"main-', '"file":"../../etc/main-'))
    assert shelf.find("main", run_of(seed=2).header)[1].header.run == "run-1"


@pytest.mark.parametrize("text", ["", "[1]", '{"schema": 2}', "[" * 10_000])
def test_a_broken_index_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "baselines.json").write_text(text)
    with pytest.raises(UsageError):
        Shelf(tmp_path).all()


def test_a_million_records_are_refused_at_once(tmp_path: Path) -> None:
    """By the number of lines alone: the reader's processor time is that of counting them."""
    path = tmp_path / "hostile.jsonl"
    path.write_bytes(b"{}\n" * 1_100_000)
    start_s = time.process_time()
    with pytest.raises(RunFileError, match=r"lines|broken"):
        read_run(path)
    assert time.process_time() - start_s < 1


def test_ten_thousand_cases_are_compared_in_seconds_and_half_a_gigabyte(tmp_path: Path) -> None:
    cases = [case_of(f"op{i % 7}", i) for i in range(10_000)]
    known = Noise(0.002, 0.002, 20)
    for seed in (1, 2):
        run = run_of(cases=cases, passes=1, seed=seed, noise=known)
        written(run, tmp_path / f"{seed}.jsonl")
    code = (
        "import sys\nfrom gpuperf.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "lines = open('/proc/self/status').read().splitlines()\n"
        "print(next(l.split()[1] for l in lines if l.startswith('VmHWM')), file=sys.stderr)"
    )
    words = ["gate", "compare", str(tmp_path / "1.jsonl"), str(tmp_path / "2.jsonl")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert int(done.stderr.strip().splitlines()[-1]) < 500_000, "kB"
    assert took_s < 6, f"{took_s:.1f} s of a processor: 3 where nothing shares its caches"
    assert DEVICE.name in done.stdout


@given(st.lists(st.floats(0, 1), max_size=60))
def test_multiplicity_is_benjamini_and_hochbergs(p: list[float]) -> None:
    assert adjusted(p) == pytest.approx(list(false_discovery_control(p)) if p else [])
