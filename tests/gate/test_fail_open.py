"""Every way in which gates in the wild let a regression through, each shut by a test of its name.

The ways are those of published gates: a step that never failed in hundreds of runs, a baseline that
drifted with the regressions, a comment that a platform cut.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import forks
import pytest
from fake_sides import FakeSide, Heard, plan_of, sides_in, suite_of
from synthetic_gate import CASES, compare_runs, run_of, written

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.gate.ab import gate_ab
from gpuperf.gate.baseline import Shelf
from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.markdown import render_comment, render_summary
from gpuperf.gate.prime import GateRequest
from gpuperf.gate.rule import Judged, Rule
from gpuperf.gate.verdict import (
    EXIT_CODES,
    CaseVerdict,
    GateReport,
    conclude,
    exit_code,
    read_report,
    write_report,
)
from gpuperf.model.record import Run


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))


def gate(folder: Path, slower: float = 0.0, **more: object) -> GateReport:
    folder.mkdir(parents=True, exist_ok=True)
    launchers = {
        "base": FakeSide(seed=1),
        "head": FakeSide(seed=2, slower={"op1/torch[n=64": slower}),
    }
    asked = GateRequest(plan_of(), folder, **more)  # type: ignore[arg-type]
    return gate_ab(asked, sides_in(folder), launchers, Heard())  # type: ignore[arg-type]


def gpuperf(*words: str, folder: Path) -> int:
    code = "from gpuperf.app import main; main()"
    done = forks.run(
        [sys.executable, "-c", code, *words], cwd=folder, capture_output=True, check=False
    )
    return done.returncode


def test_make_collapses_no_exit_code(tmp_path: Path) -> None:
    """make turns every failure into 2; the verdict's file says 1 all the same."""
    gate(tmp_path, slower=0.05)
    (tmp_path / "Makefile").write_text(f"gate:\n\t@{sys.executable} -c 'raise SystemExit(1)'\n")
    collapsed = subprocess.run(["make", "gate"], cwd=tmp_path, capture_output=True, check=False)
    assert collapsed.returncode == 2
    assert gpuperf("gate", "check", "verdict.json", folder=tmp_path) == 1


@pytest.mark.parametrize("count", [1, 255, 256, 257, 512])
def test_the_exit_code_is_not_the_number_of_failures_modulo_256(tmp_path: Path, count: int) -> None:
    report = gate(tmp_path)
    red = Judged("REGRESSED", 0.05, 0.04, 0.06, 1e-6, 1e-5, 0.02)
    cases = tuple(CaseVerdict(f"a/b[n={i}]", red) for i in range(count))
    assert exit_code(conclude(replace(report, cases=cases))) == 1


def test_one_is_a_regression_and_nothing_else() -> None:
    assert [outcome for outcome, code in EXIT_CODES.items() if code == 1] == ["regressed"]
    assert [outcome for outcome, code in EXIT_CODES.items() if code == 0] == ["passed"]


def test_a_regressed_run_does_not_become_the_next_baseline(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "shelf")
    shelf.set("main", written(run_of(), tmp_path / "a.jsonl"))
    slower = written(run_of({CASES[0].id: 0.05}, seed=2), tmp_path / "b.jsonl")
    with pytest.raises(UsageError, match="cannot become a baseline"):
        shelf.set("main", slower)
    assert shelf.all()[0].run == "run-1"


def five_thousand(folder: Path) -> GateReport:
    report = gate(folder)
    red = Judged("REGRESSED", 0.05, 0.04, 0.06, 1e-6, 1e-5, 0.02)
    cases = tuple(CaseVerdict(f"op/é{i}[n={i},{'x' * 80}=1]", red) for i in range(5000))
    return conclude(replace(report, cases=cases))


def test_a_comment_is_not_cut_at_65536_characters(tmp_path: Path) -> None:
    text = render_comment(five_thousand(tmp_path))
    assert len(text) < 65_536
    assert len(text.encode()) <= 65_536
    assert "more are not shown" in text


def test_a_summary_is_not_cut_at_a_mebibyte(tmp_path: Path) -> None:
    text = render_summary(five_thousand(tmp_path))
    assert len(text.encode()) <= 1 << 20
    assert text.startswith("### ❌ gpuperf gate: regressed")


def test_a_baseline_from_another_clock_is_none() -> None:
    other = run_of()
    hard = {**other.header.fingerprint.hard, "max_sm_clock_hz": 1.2e9}
    fingerprint = replace(other.header.fingerprint, hard=hard)
    slow = replace(other, header=replace(other.header, fingerprint=fingerprint))
    with pytest.raises(CannotMeasure, match="max_sm_clock_hz") as error:
        compare_runs(slow, run_of(seed=2), Rule(), 0.05)
    assert error.value.exit_code == 3


def test_a_missing_verdict_file_is_not_read_as_green(tmp_path: Path) -> None:
    assert gpuperf("gate", "check", "verdict.json", folder=tmp_path) == 2
    (tmp_path / "verdict.json").write_text("")
    assert gpuperf("gate", "check", "verdict.json", folder=tmp_path) == 2


def test_a_rerun_until_green_stays_no_pass(tmp_path: Path) -> None:
    first = gate(tmp_path / "first", slower=0.05)
    assert first.outcome == "regressed"
    second = gate(tmp_path / "second", earlier=first.outcome)
    assert exit_code(second) == 4


def test_a_closed_pipe_is_no_pass(tmp_path: Path) -> None:
    """`gpuperf gate check … | head` must not be green for the sake of the reader."""
    gate(tmp_path, slower=0.05)
    code = f"{sys.executable} -c 'from gpuperf.app import main; main()'"
    for words, wanted in (
        ("gate check verdict.json | true", 1),
        ("gate check none.json 2>&1 | true", 2),
        ("gate ab --base HEAD 2>&1 | true", 2),
    ):
        script = f"{code} {words}; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert int(done.stdout.split()[-1]) in (wanted, 4), words


def ended(code: str, *words: str, folder: Path, closed: bool = True) -> int:
    """The exit code of Python's *code* whose stdout is a pipe that nobody reads."""
    reader, writer = os.pipe()
    if closed:
        os.close(reader)
    try:
        return forks.run(
            [sys.executable, "-c", code, *words],
            cwd=folder,
            stdout=writer,
            stderr=subprocess.DEVNULL,
            check=False,
        ).returncode
    finally:
        os.close(writer)
        if not closed:
            os.close(reader)


@pytest.mark.parametrize("outcome", ["regressed", "passed", "incomplete"])
def test_a_long_report_into_a_closed_pipe_ends_as_the_gate_did(
    tmp_path: Path, outcome: str
) -> None:
    """Longer than any buffer: the pipe breaks in the middle of the report."""
    report = gate(tmp_path, slower=0.05 if outcome == "regressed" else 0.0)
    if outcome == "incomplete":
        report = conclude(replace(report, ended="it was interrupted"))
    padded = replace(report, notes=tuple(f"{i}: {'x' * 200}" for i in range(1000)))
    write_report(padded, tmp_path / "verdict.json")
    assert len(render_gate(padded, GateFormat.JSON)) > 3 * 65_536
    code = "from gpuperf.app import main; main()"
    words = ("gate", "check", "verdict.json", "--format", "json")
    assert ended(code, *words, folder=tmp_path) == exit_code(report)


@pytest.mark.parametrize(
    ("words", "wanted"), [(("gate", "ab"), 4), (("gate", "check"), 4), (("show", "a.jsonl"), 0)]
)
def test_a_pipe_that_breaks_before_a_gates_verdict_is_known_is_no_pass(
    tmp_path: Path, words: tuple[str, ...], wanted: int
) -> None:
    """Other verbs end quietly: nothing was judged."""
    code = (
        "import sys\nfrom gpuperf import app\n"
        "app._run = lambda: sys.stdout.write('x' * 200_000) and 1\napp.main()"
    )
    assert ended(code, *words, folder=tmp_path) == wanted


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    """As a signal, and as an exception that no signal of ours raised."""
    for raised in ("os.kill(os.getpid(), signal.SIGINT)", "raise_(KeyboardInterrupt)"):
        code = (
            "import os, signal\nfrom gpuperf import app\n"
            "def raise_(error):\n    raise error\n"
            f"app._run = lambda: {raised}\napp.main()"
        )
        assert ended(code, folder=tmp_path, closed=False) == 130


def test_a_memory_that_no_longer_suffices_is_no_finding_of_both(tmp_path: Path) -> None:
    """One process of the base that ran out of memory does not excuse all of the head's."""

    def out_of_memory(run: Run, passes: set[int]) -> Run:
        return replace(
            run,
            records=tuple(
                replace(r, status="oom", times={}, primary="")
                if r.case.id == CASES[0].id and r.pass_index in passes
                else r
                for r in run.records
            ),
        )

    base, head = out_of_memory(run_of(), {0}), out_of_memory(run_of(seed=2), set(range(8)))
    assert exit_code(compare_runs(base, head, Rule(), 0.05)) == 3


@pytest.mark.parametrize("change", ["host", "one pass", "fewer cases"])
def test_a_run_that_cannot_be_judged_does_not_become_the_next_baseline(
    tmp_path: Path, change: str
) -> None:
    shelf = Shelf(tmp_path / "shelf")
    shelf.set("main", written(run_of(), tmp_path / "a.jsonl"))
    slower = dict.fromkeys([case.id for case in CASES], 0.5)
    other = replace(run_of().header.fingerprint, live={"host": "two"})
    run = {
        "host": lambda: run_of(slower, seed=2, fingerprint=other),
        "one pass": lambda: run_of(slower, seed=2, passes=1),
        "fewer cases": lambda: run_of(seed=2, cases=CASES[:1]),
    }[change]()
    with pytest.raises(UsageError, match="cannot become a baseline: against the last one it is"):
        shelf.set("main", written(run, tmp_path / "b.jsonl"))


def test_zero_cases_judged_are_no_pass(tmp_path: Path) -> None:
    report = gate(tmp_path)
    assert exit_code(conclude(replace(report, cases=()))) == 3


@pytest.mark.parametrize("status", ["oom", "error", "timeout"])
def test_a_failure_is_a_status_and_never_a_time_of_nought(tmp_path: Path, status: str) -> None:
    bad = run_of(seed=2)
    records = tuple(
        replace(r, status=status, times={}, primary="") if r.case.id == CASES[0].id else r  # type: ignore[arg-type]
        for r in bad.records
    )
    report = compare_runs(run_of(), replace(bad, records=records), Rule(), 0.05)
    assert exit_code(report) == 3
    case = next(c for c in report.cases if c.case == CASES[0].id)
    assert case.head_s is None
    assert status in case.judged.reason


def test_a_case_that_vanished_is_missing_and_not_forgotten(tmp_path: Path) -> None:
    head = FakeSide(seed=2, names=("copy", "matmul", "op0", "op1"))
    tmp_path.mkdir(exist_ok=True)
    launchers = {"base": FakeSide(seed=1), "head": head}
    report = gate_ab(GateRequest(plan_of(), tmp_path), sides_in(tmp_path), launchers, Heard())  # type: ignore[arg-type]
    assert exit_code(report) == 3
    judged = {c.case for c in report.cases}
    assert all(any(name.startswith(f"{op}/") for name in judged) for op in ("op0", "op1", "op2"))
    assert len(suite_of().entries) == 3


def test_a_gate_that_dies_half_way_is_no_pass(tmp_path: Path) -> None:
    class Dies(Heard):
        def stage(self, name: str, records: int) -> None:
            if name.startswith("screen 3"):
                raise SystemExit(9)

    launchers = {"base": FakeSide(seed=1), "head": FakeSide(seed=2)}
    with pytest.raises(SystemExit):
        gate_ab(GateRequest(plan_of(), tmp_path), sides_in(tmp_path), launchers, Dies())  # type: ignore[arg-type]
    assert exit_code(read_report(tmp_path / "verdict.json")) == 4
    assert gpuperf("gate", "check", "verdict.json", folder=tmp_path) == 4


def test_both_sides_being_the_same_code_is_no_pass(tmp_path: Path) -> None:
    """A package that is installed from one checkout is measured on both sides."""

    repository, worktree = tmp_path / "repository", tmp_path / "worktree"
    subprocess.run(["git", "init", "-q", str(worktree)], check=True)
    for modules, told in (
        ({"mylib": str(repository / "mylib" / "__init__.py")}, "the base imports mylib from"),
        ({}, "no case runs code of this repository"),
    ):
        launchers = {
            "base": FakeSide(seed=1, modules=modules),
            "head": FakeSide(seed=2, modules=modules),
        }
        asked, sides = GateRequest(plan_of(), tmp_path), sides_in(worktree)
        with pytest.raises(CannotMeasure, match=told):
            gate_ab(asked, sides, launchers, Heard(), repository)  # type: ignore[arg-type]
