"""Define how submissions are judged."""

from __future__ import annotations

from dataclasses import dataclass

from gpuperf.judge.evidence import Forbidden
from gpuperf.model.record import Started


@dataclass(frozen=True)
class Settings:
    """How submissions are judged: the isolation, the number of processes, the longest silence of a
    worker in seconds, whether to show what workers print, how workers start, whether
    torch.compile of the reference is timed too, the device (`auto`, `cuda:0`, `cpu`), and whose
    kernels are forbidden (`library`: those of others).

    A forked worker is a fork of a process that has imported torch and runs no submission. Folders
    of files in memory are made in the folder `memory`, by default in /dev/shm, and other temporary
    folders in `disk`, by default in that of the system.
    """

    isolation: str = "process"
    processes: int = 3
    deadline_s: float = 60.0
    debug: bool = False
    started: Started = "spawned"
    compiled: bool = False
    device: str = "cpu"
    memory: str = ""
    disk: str = ""
    forbid: Forbidden = ""

    @property
    def may_use_gpu(self) -> bool:
        """Whether the device may be a GPU."""
        return self.device != "cpu"
