"""A hostile submission changes no verdict but its own, and leaves nothing running."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from working_below import running

from gpuperf.judge.clerk import Clerk
from gpuperf.judge.reading import read_task
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import Submission
from gpuperf.judge.tree import own_children

HERE = Path(__file__).parent
TASK = HERE.parent / "cheats" / "judged" / "tasks" / "matmul.py"
HONEST = {"valid", "inconclusive", "suspect"}
EXPECTED = {
    "cuts_shared_files": {"cheat"},
    "environment": {"wrong"},
    "fills_disk": HONEST,
    "floods": HONEST,
    "forks": HONEST,
    "forks_without_end": {"timeout", "wrong", "crashed"},
    "hangs": {"timeout"},
    "kills_parent": {"crashed"},
    "native": {"cheat"},
    "patches": {"cheat", "wrong"},
    "signals": HONEST,
    "threads": HONEST,
    "writes_home": HONEST,
    "writes_verdict": {"wrong"},
}


def test_every_hostile_file_has_an_expectation() -> None:
    assert {path.stem for path in (HERE / "hostile").glob("*.py")} == set(EXPECTED)


SLOW = ("floods", "forks_without_end", "hangs")  # each takes a quarter of a minute


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in EXPECTED],
)
def test_a_hostile_submission_harms_itself_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUPERF_TEST_SECRET", "1")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (tmp_path / "mine.py").write_text((HERE / "hostile" / f"{name}.py").read_text())
    (tmp_path / "reference.py").write_text(TASK.read_text())
    judge = CommandLine(tmp_path)
    words = ("--against", "reference.py", "--processes", "1", "--deadline", "12")
    ended = judge("judge", "mine.py", *words)
    said = json.loads((tmp_path / "verdict.json").read_text())
    assert said["status"] in EXPECTED[name], ended.err
    assert judge("judge", "check", "verdict.json").code == ended.code
    assert running(tmp_path) == set()
    assert list(temporary.iterdir()) == []


def test_an_orphan_ends_before_it_could_end_the_clerk(tmp_path: Path) -> None:
    """It is a child of the clerk once its guard has died, and would find it as its parent."""
    text = (HERE / "hostile" / "kills_parent.py").read_text()
    (tmp_path / "mine.py").write_text(text.replace("time.sleep(0.5)", "time.sleep(3600)"))
    task = read_task(TASK, "kernelbench", 1)
    with Clerk(task, task.cases[0], Settings(processes=1)) as clerk:
        clerk.load()
        clerk._reference(0)
        ours = own_children()
        evidence = clerk.judge(Submission(str(tmp_path / "mine.py")))
        assert own_children() == ours
        assert clerk.is_spoiled()
    assert evidence.failure == "crashed"


def test_a_sandbox_forbids_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((HERE / "hostile" / "writes_home.py").read_text())
    (tmp_path / "reference.py").write_text(TASK.read_text())
    judge = CommandLine(tmp_path)
    words = ("--against", "reference.py", "--processes", "1", "--isolation", "sandbox")
    plain = tmp_path / "plain.py"
    plain.write_text((TASK.parents[1] / "honest" / "matmul_torch.py").read_text())
    judge("judge", "plain.py", *words)
    said = json.loads((tmp_path / "verdict.json").read_text())
    restrictions = said["cases"][0]["evidence"]["restrictions"]
    assert restrictions["level"] == "sandbox"
    assert said["status"] in HONEST
    if not any("Landlock" in each for each in restrictions["in_force"]):
        assert any("Landlock" in each for each in restrictions["unavailable"])
        pytest.skip("needs a kernel with Landlock")
    ended = judge("judge", "mine.py", *words)
    assert ended.code == 3, ended.err
    assert "Permission denied" in ended.out
    assert not (tmp_path / "left-behind.txt").exists()
