"""Does `gpuperf gate` on a real repository, with real workers, say what it would do and refuse what
it cannot?"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import forks
import pytest
from repositories import git

from gpuperf.gate.command import _is_commit
from gpuperf.gate.plan import read_plan

SUITE = """
schema = 1
[conditions]
budget_s = 0.05
[[case]]
op = "./double.py"
sizes = "64,128"
"""


def gpuperf(*words: str, folder: Path) -> tuple[int, str, str]:
    code = "from gpuperf.app import main; main()"
    done = forks.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def gated(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUPERF_CACHE", str(project.parent / "cache"))
    (project / "suite.toml").write_text(SUITE)
    (project / "gpuperf.toml").write_text('suite = "suite.toml"\n')
    git(project, "add", "-A")
    git(project, "commit", "-qm", "a suite")
    (project / "mylib" / "__init__.py").write_text('NAME = "three"\n')
    git(project, "commit", "-qam", "three")
    return project


def test_a_dry_run_says_cases_and_what_is_not_known_yet(gated: Path) -> None:
    code, out, err = gpuperf(
        "gate", "ab", "--base", "HEAD~1", "--device", "cpu", "--dry-run", folder=gated
    )
    assert code == 0, err
    assert "double/mine[n=64,dtype=fp32]" in out
    assert (
        "12 processes of 2 cases and 2 sentinels, up to 40 of the suspicious: unknown before" in out
    )
    assert not (gated / "gpuperf-runs" / "base").exists()
    assert git(gated, "worktree", "list").count("\n") == 0
    assert "no case names a file of this repository" not in out


def test_a_dry_run_says_that_a_suite_without_own_code_is_refused(gated: Path) -> None:
    suite = SUITE.replace("./double.py", "copy")
    (gated / "other.toml").write_text(suite)
    words = ("--base", "HEAD~1", "--suite", "other.toml", "--device", "cpu", "--dry-run")
    code, out, err = gpuperf("gate", "ab", *words, "--format", "md", folder=gated)
    assert code == 0, err
    assert "no case names a file of this repository: the gate is refused unless" in out


def test_the_suite_of_the_base_counts(gated: Path) -> None:
    (gated / "suite.toml").write_text(SUITE.replace("64,128", "128"))
    git(gated, "commit", "-qam", "a case less")
    for folder, words in ((gated, ()), (gated / "mylib", ("--suite", "../suite.toml"))):
        code, out, err = gpuperf(
            "gate", "ab", "--base", "HEAD~1", *words, "--device", "cpu", "--dry-run", folder=folder
        )
        assert code == 0, err
        assert "double/mine[n=64,dtype=fp32]" in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "there is nothing to compare with"),
        (("--base-python", "python3"), 2, "hint: give --head-python"),
        (("--base", "nope"), 2, "there is no commit 'nope'"),
        (("--base", "HEAD", "--suite", "cii"), 2, "no suite 'cii'; did you mean 'ci'"),
        (("--base", "HEAD", "--head-python", "x"), 2, "exclude each other"),
        (("--base", "HEAD", "--abs-floor", "fast"), 2, "--abs-floor"),
        (("--base", "HEAD~1", "--setup", "exit 7"), 3, "of the base ended with exit code 7"),
        (("--resume", "nowhere"), 2, "nowhere/plan.json cannot be read"),
        (("--resume", "nowhere", "--base", "HEAD"), 2, "is resumed as it was begun"),
        (("--base", "HEAD"), 2, "HEAD and this worktree hold the same files"),
        (("--base-python", "python3", "--head-python", "python3"), 2, "the same interpreter"),
        (("--base", "HEAD~1", "--head", "mylib"), 2, "'mylib' is a folder and a commit"),
    ],
)
def test_what_cannot_be_gated_is_one_sentence_and_the_right_code(
    gated: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    git(gated, "branch", "mylib")
    found, out, err = gpuperf("gate", "ab", *words, folder=gated)
    assert (found, out) == (code, "")
    assert told in err
    assert "hint: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("given", "named"),
    [("0f2c9ab", True), ("0F2C9AB", True), ("0f2c9", False), ("", False), ("0f2c9ac", False)],
)
def test_a_commit_is_named_by_its_first_digits(given: str, named: bool) -> None:
    assert _is_commit(given, "0f2c9ab" + "0" * 33) is named


def test_a_case_that_is_to_be_slow_must_be_one_of_the_suite(gated: Path) -> None:
    (gated / "copies.toml").write_text(SUITE.replace("./double.py", "copy"))
    words = ("--suite", "copies.toml", "--gates", "0", "--injected", "1", "--case", "double/nine")
    code, _, err = gpuperf("gate", "calibrate", "--device", "cpu", *words, folder=gated)
    assert code == 2
    assert "no case 'double/nine'" in err
    assert "known: copy/cuda[n=128,dtype=fp32]" in err


def test_two_runs_are_compared_with_the_right_codes(tmp_path: Path) -> None:
    from synthetic_gate import CASES, run_of, written

    written(run_of(), tmp_path / "a.jsonl")
    written(run_of({CASES[0].id: 0.06}, seed=2), tmp_path / "b.jsonl")
    written(run_of(seed=3), tmp_path / "c.jsonl")
    codes = {
        name: gpuperf("gate", "compare", "a.jsonl", f"{name}.jsonl", folder=tmp_path)[0]
        for name in "abc"
    }
    assert codes == {"a": 3, "b": 1, "c": 0}  # a run is not compared with itself
    assert gpuperf("gate", "compare", "none.jsonl", "a.jsonl", folder=tmp_path)[0] == 3
    assert gpuperf("gate", "compare", "main", "a.jsonl", folder=tmp_path)[0] == 3
    assert gpuperf("baseline", "set", "a.jsonl", folder=tmp_path)[0] == 0
    assert gpuperf("gate", "compare", "main", "b.jsonl", "--out", "v", folder=tmp_path)[0] == 1
    assert gpuperf("gate", "check", "v/verdict.json", folder=tmp_path)[0] == 1
    refused = gpuperf("gate", "check", "v/verdict.json", "--commit", "0123456", folder=tmp_path)
    assert refused[0] == 3
    assert "the verdict is on no commit, and not on '0123456'" in refused[2]
    assert sorted(p.name for p in (tmp_path / "v").iterdir()) == [
        "junit.xml",
        "pairs.png",
        "pairs.svg",
        "report.md",
        "verdict.json",
    ]
    assert gpuperf("baseline", "set", "b.jsonl", folder=tmp_path)[0] == 2


def test_a_baseline_says_what_it_is_and_how_few_processes_it_has(tmp_path: Path) -> None:
    from synthetic_gate import run_of, written

    written(run_of(passes=2), tmp_path / "few.jsonl")
    written(run_of(), tmp_path / "many.jsonl")
    code, out, err = gpuperf("baseline", "set", "few.jsonl", "--name", "few", folder=tmp_path)
    assert (code, out) == (0, "")
    assert err.startswith(
        "few: run-1 on a CPU under torch 2.13\nthis run has 2 processes: a run of"
    )
    _, _, err = gpuperf("baseline", "set", "many.jsonl", folder=tmp_path)
    assert err == "main: run-1 on a CPU under torch 2.13\n"
    code, out, err = gpuperf("baseline", "show", "main", folder=tmp_path)
    assert code == 0
    assert re.fullmatch(r"main: set \d{4}-\d\d-\d\d, passed\n", err)
    assert out.startswith("op0 on a CPU")


@pytest.mark.parametrize("text", ["[1]", "7", "null"])
def test_json_that_is_no_object_is_no_verdict(text: str, tmp_path: Path) -> None:
    (tmp_path / "verdict.json").write_text(text)
    code, out, err = gpuperf("gate", "check", "verdict.json", folder=tmp_path)
    assert (code, out) == (2, "")
    assert "verdict.json is not a verdict: it holds no JSON object" in err


def test_a_repository_without_a_suite_of_its_own_is_refused(project: Path) -> None:
    """Its gate would measure gpuperf's kernels, which no change of it can make slower."""
    code, out, err = gpuperf("gate", "ab", "--base", "HEAD~1", folder=project)
    assert (code, out) == (2, "")
    assert "project names no suite" in err
    assert 'suite = "bench.toml" into gpuperf.toml' in err
    code, _, err = gpuperf(
        "gate", "ab", "--base", "HEAD~1", "--suite", "ci", "--setup", "exit 7", folder=project
    )
    assert code == 3
    assert "the suite ci measures gpuperf's own kernels" in err
    (project / "gpuperf.toml").write_text('suite = "ci"\n')
    code, _, err = gpuperf("gate", "ab", "--base", "HEAD~1", "--setup", "exit 7", folder=project)
    assert code == 3
    assert "the suite ci measures gpuperf's own kernels" in err


def test_gpuperf_itself_is_gated_by_its_own_kernels(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project]\nname = "gpuperf"\n')
    code, _, err = gpuperf("gate", "ab", "--base", "HEAD~1", "--setup", "exit 7", folder=project)
    assert code == 3
    assert "of the base ended with exit code 7" in err
    assert "own kernels" not in err
    (folder,) = (project / "gpuperf-runs").iterdir()
    assert read_plan(folder).suite.name == "ci"
    assert read_plan(folder).target == 0.05


@pytest.mark.parametrize("broken", ["gpuperf.toml", "suite.toml"])
def test_an_error_in_a_file_of_the_base_says_that_it_is_the_bases(gated: Path, broken: str) -> None:
    right = (gated / broken).read_text()
    (gated / broken).write_text("suite = 3\n")
    git(gated, "commit", "-qam", "broken")
    (gated / broken).write_text(right)
    git(gated, "commit", "-qam", "mended")
    code, _, err = gpuperf("gate", "ab", "--base", "HEAD~1", folder=gated)
    assert code == 2
    assert "in the base HEAD~1 (" in err


def test_an_interpreter_that_is_none_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    words = ("--base-python", "nofile", "--head-python", sys.executable)
    code, _, err = gpuperf("gate", "ab", *words, folder=tmp_path)
    assert code == 2
    assert "nofile of the base is not a program" in err
    assert "interrupted" not in err
    assert not list(tmp_path.glob("gpuperf-runs/*"))


def test_an_interrupted_gate_says_how_it_goes_on(gated: Path) -> None:
    words = ("--base", "HEAD~1", "--setup", "kill -INT $PPID; sleep 5")
    code, out, err = gpuperf("gate", "ab", *words, folder=gated)
    assert (code, out) == (130, "")
    (folder,) = (gated / "gpuperf-runs").iterdir()
    hint = f"interrupted; to go on: gpuperf gate ab --resume gpuperf-runs/{folder.name}"
    assert err.splitlines()[-1] == hint
