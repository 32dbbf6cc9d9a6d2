"""Ask workers of a gang which line of Python they execute, by a signal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

POLL_S = 0.005  # between two looks at the files
STACK_S = 2.0  # for a rank to write its stack
MOST_STACK = 1 << 20  # characters of a stack that are read
FRAME = re.compile(r'File "(.*)", line (\d+) in (.*)')
WAITING = ("/torch/distributed/", "/torch/cuda/")  # places in which a rank waits for others


class Place(NamedTuple):
    """The innermost line of Python that a rank executes."""

    file: str
    line: int
    function: str

    @property
    def waits(self) -> bool:
        """Whether the rank waits there for other ranks or for its device."""
        return any(folder in self.file for folder in WAITING)

    def __str__(self) -> str:
        return f"in {self.function}, {Path(self.file).name} line {self.line}"


def stack_file(folder: Path, rank: int) -> Path:
    """Return the file in the gang's *folder* to which *rank* writes its stack."""
    return folder / f"stack.{rank}"


def written_stacks(pids: Mapping[int, int], folder: Path) -> dict[int, str]:
    """Return what each rank, whose process is in *pids*, writes to *folder* as its stack.

    The text is empty for a rank that does not write; no rank is asked unless all have joined.
    """
    files = {rank: stack_file(folder, rank) for rank in pids}
    if not all(file.exists() for file in files.values()):
        return {}  # the signal would end a rank that has not joined
    before = {rank: file.stat().st_size for rank, file in files.items()}
    for pid in pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    end = time.monotonic() + STACK_S
    stacks = dict.fromkeys(pids, "")
    while not all(map(innermost, stacks.values())) and time.monotonic() < end:
        time.sleep(POLL_S)
        for rank, file in files.items():
            stacks[rank] = file.read_text("utf-8", "replace")[before[rank] :][:MOST_STACK]
    return stacks


def innermost(stack: str) -> Place | None:
    """Return the innermost frame of what `faulthandler` wrote; None for no frame."""
    match = FRAME.search(stack)
    return Place(match[1], int(match[2]), match[3]) if match else None
