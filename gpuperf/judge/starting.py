"""Start the workers of a clerk, each in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuperf.judge.environment import worker_environment
from gpuperf.judge.protocol import FromAnswers, FromSeat
from gpuperf.judge.seat import ANSWERS, SEAT, Ended, Seat, launch
from gpuperf.judge.settings import Settings
from gpuperf.judge.shared_files import SharedFiles
from gpuperf.judge.task import Side
from gpuperf.run.connection import LocalConnection
from gpuperf.run.forking import ForkServer

# Answers of gigabytes, of several sizes, would leave holes in the memory of the device that fit no
# other answer.
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
MEMORY_FILES = Path("/dev/shm")
Seated = tuple[Seat, Path]  # a seat, and the folder of the files that it shares


@dataclass
class Starter:
    """Starts workers with scratch folders in *scratch*, and seats with shared files in *memory*.

    With *server*, they are forks of a process that has imported torch and runs no submission.
    """

    settings: Settings
    server: ForkServer | None
    files: SharedFiles
    scratch: Path
    memory: Path
    _begun: dict[str, Seated] = field(default_factory=dict)

    def answers(self) -> LocalConnection:
        """Start the answers' worker."""
        return self._launch(ANSWERS, self.scratch, FromAnswers, EXPANDABLE)

    def begin(self, side: Side, name: str) -> None:
        """Start the seat *name*, unless that has begun; `seat` returns it.

        No earlier submission can have made its folder, as the name of the folder is random.
        """
        if name in self._begun:
            return
        folder = self.memory / f"{name}-{secrets.token_hex(8)}"
        scratch = self.scratch_of(folder)
        for each in (folder, scratch):
            each.mkdir(mode=0o700)
        self.files.add(folder)
        connection = self._launch(SEAT, scratch, FromSeat)
        check = self.files.check if side == "submission" else _nothing
        self._begun[name] = Seat(side, connection, self.settings.deadline_s, check), folder

    def await_begun(self) -> None:
        """Wait until seats have imported torch, so that no start disturbs a measurement."""
        for seat, _ in self._begun.values():
            with contextlib.suppress(Ended):  # it is raised again for whoever uses the seat
                seat.hello()

    def seat(self, side: Side, name: str) -> Seated:
        """Return the seat *name*, which starts now if it has not begun."""
        self.begin(side, name)
        return self._begun.pop(name)

    def scratch_of(self, folder: Path) -> Path:
        """Return the scratch folder of the seat whose shared files are in *folder*."""
        return self.scratch / folder.name

    def remove(self, folder: Path) -> None:
        """Remove both folders of a seat that has ended."""
        self.files.forget(folder)
        for each in (folder, self.scratch_of(folder)):
            shutil.rmtree(each, ignore_errors=True)

    def drop(self) -> None:
        """End the seats that have begun and were not used."""
        for seat, folder in self._begun.values():
            seat.close()
            self.remove(folder)
        self._begun.clear()

    def _launch(
        self, module: str, folder: Path, messages: Any, more: Mapping[str, str] | None = None
    ) -> LocalConnection:
        environment = {**worker_environment(str(folder), self.settings.may_use_gpu), **(more or {})}
        return launch(module, str(folder), environment, messages, self.settings.debug, self.server)


def temporary(held: ExitStack, parent: str = "", usual: Path | None = None) -> Path:
    """Return a new folder in *parent*, or in the *usual* place, that is removed when *held* ends.

    Its name is short where *parent* says whose it is: the path of a socket has 107 characters.
    """
    name = tempfile.mkdtemp(prefix="" if parent else "gpuperf-judge-", dir=parent or usual)
    held.callback(shutil.rmtree, name, ignore_errors=True)
    return Path(name)


def in_memory_folder(held: ExitStack, parent: str = "") -> Path:
    """Return a new folder in memory, or on a disk without that, removed when *held* ends."""
    return temporary(held, parent, MEMORY_FILES if os.access(MEMORY_FILES, os.W_OK) else None)


def _nothing() -> None:
    """Check nothing: the code of the reference is trusted."""
