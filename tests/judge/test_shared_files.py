"""A submission that changes a file that it shares with the judge is a cheat, and harms no file."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuperf.errors import CannotMeasure
from gpuperf.judge.clerk import Clerk
from gpuperf.judge.inside.layout import map_file
from gpuperf.judge.reading import read_task
from gpuperf.judge.rule import judge_case
from gpuperf.judge.run import serving
from gpuperf.judge.seat import Ended
from gpuperf.judge.settings import Settings
from gpuperf.judge.shared_files import SharedFiles
from gpuperf.judge.task import Submission
from gpuperf.run.forking import ForkServer

CORPUS = Path(__file__).parent.parent / "cheats" / "judged"
# The scratch folder of a seat, where it runs, has the name of the folder of its shared files.
HOSTILE = """
import os
from pathlib import Path

import torch

victim = Path({victim!r})
(own,) = Path("/").glob(f"{memory}/gpuperf-judge-*/{{Path.cwd().name}}")
(reference,) = own.parent.glob("reference-0-*")
slots, results = own / "slots", own.parent / "results"


def attack():
    {attack}


{early}


class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, a, b):
        ModelNew.calls += 1
        if ModelNew.calls == {call}:
            attack()
        return a @ b
"""
LINK = "{0}.unlink(); {0}.symlink_to(victim)"
LATE = {
    "link": (LINK.format("slots"), "'slots'.* was replaced by a symbolic link"),
    "link_results": (LINK.format("results"), "'results'.* was replaced by a symbolic link"),
    "fifo": ("slots.unlink(); os.mkfifo(slots)", "was replaced by a FIFO"),
    "folder": ("slots.unlink(); slots.mkdir()", "was replaced by a folder"),
    "file": ("slots.rename(own / 'x'); slots.write_bytes(b'x')", "was replaced by another file"),
    "gone": ("slots.unlink()", "is gone"),
    "linked_folder": ("own.rename(own.parent / 'x'); own.symlink_to(victim.parent)", "is gone"),
    "cut": ("os.truncate(slots, 0)", "has 0 bytes instead of"),
    "longer": ("os.truncate(slots, 2**26)", "has 67108864 bytes instead of"),
    "mode": ("slots.chmod(0)", "other permissions"),
    "cut_of_reference": ("os.truncate(reference / 'slots', 0)", "has 0 bytes instead of"),
}
EARLY = {
    "link": ("slots.symlink_to(victim)", "was made before the judge made it"),
    "weights": ("os.link(victim, own / 'weights')", "was made before the judge made it"),
    "fifo": ("os.mkfifo(slots)", "was made before the judge made it"),
    "linked_folder": ("own.rmdir(); own.symlink_to(victim.parent)", "has no folder any more"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer | None]:
    with serving(Settings(started="forked")) as server:
        yield server


@pytest.mark.parametrize(
    ("attack", "sentence", "early"),
    [
        *(pytest.param(*case, False, id=name) for name, case in LATE.items()),
        *(pytest.param(*case, True, id=f"early_{name}") for name, case in EARLY.items()),
    ],
)
def test_a_changed_file_is_a_cheat(
    attack: str, sentence: str, early: bool, tmp_path: Path, server: ForkServer | None
) -> None:
    victim = tmp_path / "victims" / "victim"
    victim.parent.mkdir()
    victim.write_text("unharmed")
    task = read_task(CORPUS / "tasks" / "matmul.py", "kernelbench", 1)
    with Clerk(task, task.cases[0], Settings(processes=2), server) as clerk:
        memory = clerk._starting.memory.parent.relative_to("/")
        text = HOSTILE.format(
            victim=str(victim),
            memory=memory,
            attack=attack,
            early="attack()" if early else "",
            call=0 if early else 20,
        )
        (tmp_path / "mine.py").write_text(text)
        judgement = judge_case(clerk.judge(Submission(str(tmp_path / "mine.py"))))
        assert judgement.status == "cheat", judgement.reason
        assert re.search(sentence, judgement.reason)
        assert clerk.is_spoiled()
    assert victim.read_text() == "unharmed"
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]


@pytest.mark.parametrize("kind", ["link", "fifo", "size", "missing"])
def test_the_workers_map_regular_files_of_the_right_size_alone(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "slots"
    if kind == "link":
        (tmp_path / "other").write_bytes(bytes(4096))
        path.symlink_to(tmp_path / "other")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "size":
        path.write_bytes(bytes(8192))
    with pytest.raises(
        CannotMeasure, match=r"cannot be opened|is not a regular file of 4096 bytes"
    ):
        map_file(str(path), 4096)


def test_the_first_breach_is_kept(tmp_path: Path) -> None:
    files = SharedFiles()
    files.add(tmp_path)
    handle = files.make(tmp_path / "slots", 4096)
    assert files.make(tmp_path / "slots", 4096) == handle
    files.check()
    os.truncate(tmp_path / "slots", 0)
    with pytest.raises(Ended, match="has 0 bytes instead of 4096"):
        files.check()
    os.truncate(tmp_path / "slots", 4096)
    assert "has 0 bytes" in files.breach()
    files.close()


def test_a_full_file_system_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that writes to a mapped file without room is killed by SIGBUS."""
    files = SharedFiles()
    files.add(tmp_path)

    def full(handle: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CannotMeasure, match="has no room for 1 MiB: No space left"):
        files.make(tmp_path / "slots", 1 << 20)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    files.make(tmp_path / "slots", 1 << 20)
    assert (tmp_path / "slots").stat().st_blocks * 512 >= 1 << 20
    files.close()
