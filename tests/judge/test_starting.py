"""The workers of a judgement start side by side, before its first measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuperf.errors import GpuperfError
from gpuperf.judge.clerk import Clerk
from gpuperf.judge.reading import read_task
from gpuperf.judge.run import serving
from gpuperf.judge.settings import Settings
from gpuperf.judge.task import Submission
from gpuperf.judge.tree import own_children

CORPUS = Path(__file__).parent.parent / "cheats" / "judged"
SIDES = ("reference", "submission")


def is_alive(pid: int) -> bool:
    """Return whether the process *pid* has not ended."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_a_judgement_uses_workers_that_have_begun_and_ends_the_others() -> None:
    task = read_task(CORPUS / "tasks" / "matmul.py", "kernelbench", 1)
    submission = Submission(str(CORPUS / "cheats" / "c1_zeros.py"))
    settings = Settings(processes=3, started="forked")
    with serving(settings) as server, Clerk(task, task.cases[0], settings, server) as clerk:
        clerk._begin()
        guards = {name: s.connection.guard for name, (s, _) in clerk._starting._begun.items()}
        assert guards.keys() == {f"{side}-{process}" for side in SIDES for process in range(3)}
        assert all(map(is_alive, guards.values()))
        evidence = clerk.judge(submission)
        assert any(audit.failed for audit in evidence.audits)  # so one process was enough
        seats = {side: seat.connection.guard for side, (seat, _) in clerk._references.items()}
        assert seats == {("reference", p): guards[f"reference-{p}"] for p in range(3)}
        assert not any(is_alive(guards[f"submission-{process}"]) for process in range(3))
        assert not clerk.is_spoiled()
        assert not list(clerk._starting.memory.glob("submission-*"))


def test_a_task_that_cannot_be_loaded_leaves_no_worker(tmp_path: Path) -> None:
    before = own_children()
    (tmp_path / "reference.py").write_text((CORPUS / "tasks" / "matmul.py").read_text())
    task = read_task(tmp_path / "reference.py", "kernelbench", 1)
    (tmp_path / "reference.py").write_text("raise OSError\n")
    with Clerk(task, task.cases[0], Settings(processes=1)) as clerk:
        for _ in range(2):
            with pytest.raises(GpuperfError, match="OSError"):
                clerk.judge(Submission(str(CORPUS / "honest" / "matmul_torch.py")))
    assert own_children() == before
