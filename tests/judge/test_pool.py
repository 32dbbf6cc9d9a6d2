"""The pool judges many submissions: each in new processes, whatever others did before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from working_below import running

import gpuperf
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.judge import starting
from gpuperf.judge.outcomes import ACCUSED

CORPUS = Path(__file__).parent.parent / "cheats" / "judged"
MODEL = "class ModelNew(torch.nn.Module):\n    def forward(self, a, b):\n        return {}\n"
ONE: Any = {"processes": 1, "compiled": False}
# Changes what its process, its parent and the folders of the user would hand on to others.
TOUCHES = """
import builtins, os, tempfile
import torch
builtins.touched = True
torch.nn.Module.touched = True
os.environ["TOUCHED"] = "1"
torch.set_default_dtype(torch.float64)
open(os.path.join(tempfile.gettempdir(), "touched"), "w").close()
"""
LOOKS = """
import builtins, os, tempfile
import torch
touched = hasattr(builtins, "touched") or hasattr(torch.nn.Module, "touched")
touched |= "TOUCHED" in os.environ or torch.get_default_dtype() != torch.float32
if touched or os.path.exists(os.path.join(tempfile.gettempdir(), "touched")):
    raise SystemExit("another submission was here")
"""
# Kills the clerk, which is the ancestor that runs this module.
KILLS = """
import os, signal
import torch
pid = os.getpid()
while pid > 1 and b"inside.pooled" not in open(f"/proc/{pid}/cmdline", "rb").read():
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
if pid > 1:
    os.kill(pid, signal.SIGKILL)
"""
LEAVES = """
import os, time
import torch
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(3600)
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "reference.py").write_text((CORPUS / "tasks" / "matmul.py").read_text())
    texts = {"touches": TOUCHES, "looks": LOOKS, "kills": KILLS, "leaves": LEAVES}
    for name, head in {**texts, "right": "import torch\n"}.items():
        (tmp_path / f"{name}.py").write_text(head + MODEL.format("a @ b"))
    (tmp_path / "wrong.py").write_text("import torch\n" + MODEL.format("a @ b + 1e-3"))
    return tmp_path


def test_each_submission_is_judged_in_processes_that_no_other_has_touched(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["touches", "looks", "wrong", "leaves", "kills", "looks"]
    memory, disk = folders = files / "memory", files / "disk"
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(starting, "MEMORY_FILES", memory)
    monkeypatch.setattr("tempfile.tempdir", str(disk))
    with gpuperf.Judge(against=files / "reference.py") as pool:
        verdicts = list(pool.map(files / f"{name}.py" for name in names))
        assert all(any(folder.iterdir()) for folder in folders)
    assert not any(any(folder.iterdir()) for folder in folders)  # though a clerk was killed
    said = {name: verdict for name, verdict in zip(names, verdicts, strict=True)}
    assert [v.submission.name for v in verdicts] == [f"{name}.py" for name in names]
    for name in ("touches", "looks", "leaves"):
        assert said[name].status not in ("crashed", "compile-error"), said[name].reason
    assert verdicts[1].status not in ACCUSED | {"crashed", "compile-error"}
    assert said["wrong"].status == "wrong"
    assert said["wrong"].score is None
    assert said["kills"].status == "crashed"
    assert "ended the process that judged it" in said["kills"].reason
    assert verdicts[1].cases[0].evidence.started == "forked"


def test_nothing_runs_once_the_pool_is_closed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(files))
    with gpuperf.Judge(against=files / "reference.py", isolation="sandbox") as pool:
        next(pool.map([files / "leaves.py"]))
        assert running(files)
    assert not running(files)
    with pytest.raises(UsageError, match="the pool is closed"):
        next(pool.map([files / "right.py"]))


def test_two_workers_keep_the_order_and_take_files_as_they_get_free(files: Path) -> None:
    taken = []

    def endless() -> Iterator[Path]:
        while True:
            taken.append(files / "wrong.py")
            yield taken[-1]

    with gpuperf.Judge(against=files / "reference.py", workers=2) as pool:
        verdicts = pool.map(endless())
        assert [next(verdicts).status for _ in range(3)] == ["wrong"] * 3
        assert len(taken) <= 3 + 4


def test_a_changed_task_ends_the_search(files: Path) -> None:
    with gpuperf.Judge(against=files / "reference.py") as pool:
        assert next(pool.map([files / "wrong.py"])).status == "wrong"
        text = (files / "reference.py").read_text()
        (files / "reference.py").write_text(text.replace("a @ b", "a @ b + 1e-3"))
        with pytest.raises(CannotMeasure, match="has changed since"):
            list(pool.map([files / "wrong.py"]))


def test_one_submission_is_judged_as_by_the_command(files: Path) -> None:
    verdict = gpuperf.judge(
        files / "wrong.py", against=files / "reference.py", processes=1, compiled=False
    )
    assert isinstance(verdict, gpuperf.Verdict)
    assert (verdict.status, verdict.score) == ("wrong", None)
    assert verdict.cases[0].evidence.started == "spawned"
    with pytest.raises(UsageError, match="absent"):
        gpuperf.judge(
            files / "absent.py", against=files / "reference.py", processes=1, compiled=False
        )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"workers": 0}, "at least 1"),
        ({"isolation": "container"}, "no isolation 'container'"),
        ({"format": "yaml"}, "no format 'yaml'"),
        ({"isolaton": "sandbox"}, "did you mean 'isolation'"),
        ({"started": "borrowed"}, "cannot be 'borrowed'"),
        ({"deadline_s": 0.0}, "deadline"),
        ({"against": "absent.py"}, "no file"),
    ],
)
def test_bad_arguments_are_refused_at_once(files: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        gpuperf.Judge(**{"against": files / "reference.py", **more})
