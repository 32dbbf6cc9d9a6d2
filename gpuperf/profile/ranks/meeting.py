"""Let the gpuperf processes of all ranks meet: files of a folder beside the run.

The folder `.ranks-LAUNCH` has a `hello` of each rank, which rank 0 answers by a `welcome` with the
run's id. A rank accepts only the answer to its own token, so files of an earlier launch do no harm.
In the folder of the run each process then

- counts seconds in `alive-RANK`, so that the others see if it dies;
- writes its records to `shard-RANK.jsonl`, and how its program ended to `ended-RANK.json`.

Rank 0 merges the shards into one run and removes the folder, for which the others wait: a launcher
such as torchrun kills all ranks as soon as one of them fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuperf.errors import CannotMeasure
from gpuperf.files import write_atomically
from gpuperf.run.answers import named
from gpuperf.run.torchrun import Place

MEET_S = 120.0  # seconds for all ranks to begin, from a slow disk
BEAT_S = 1.0  # seconds between two signs of life
SILENT_S = 120.0  # seconds without one until a process of another host counts as dead
GRACE_S = 5.0  # seconds in which a program may end by itself after another rank failed
LOOK_S = 0.05  # seconds between two looks at the folder
SHARED_OUT = "all ranks write to one --out, which all hosts must share"


@dataclass
class Meeting:
    """The processes of a launch, of which this one is at *place*; its folder is in *out*."""

    out: Path
    place: Place
    meet_s: float = MEET_S
    grace_s: float = GRACE_S
    run: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _seen: dict[int, tuple[str, float]] = field(default_factory=dict)
    _lost_at: float | None = None
    _look_at: float = 0.0
    _failed: str = ""

    @property
    def rank(self) -> int:
        return self.place.rank

    @property
    def first(self) -> bool:
        """Return whether this is rank 0, which reports."""
        return self.place.rank == 0

    @property
    def others(self) -> tuple[int, ...]:
        """Return the ranks that this one observes: rank 0 all others, the others rank 0."""
        return tuple(range(1, self.place.world)) if self.first else (0,)

    @property
    def _pause_s(self) -> float:
        """Return the seconds between two looks, each of which reads a file of every other rank."""
        return LOOK_S * max(1, len(self.others) // 8)

    @property
    def lobby(self) -> Path:
        return self.out / f".ranks-{self.place.launch}"

    @property
    def folder(self) -> Path:
        """Return the folder of the run; it is gone once rank 0 has reported."""
        return self.lobby / self.run

    def shard(self, rank: int) -> Path:
        """Return the path of the records of *rank*."""
        return self.folder / f"shard-{rank}.jsonl"

    def begin(self, identity: str) -> None:
        """Wait for all ranks, and take the run's id: *identity* of rank 0.

        Raises: CannotMeasure if a rank does not come within `meet_s` seconds.
        """
        self.lobby.mkdir(parents=True, exist_ok=True)
        if self.first:
            self.run = identity
            self.folder.mkdir()
            self._welcome()
        else:
            self.run = self._arrive()
        threading.Thread(target=self._beat, daemon=True).start()

    def _welcome(self) -> None:
        answered: dict[int, str] = {}
        end = time.monotonic() + self.meet_s
        while len(answered) < len(self.others):
            for rank in self.others:
                hello = _read(self.lobby / f"hello-{rank}.json")
                token = str(hello.get("token", ""))
                if token and answered.get(rank) != token and _is_alive(hello):
                    answered[rank] = token
                    self._write(
                        self.lobby / f"welcome-{rank}.json", token=token, run=self.run, **_own()
                    )
            if time.monotonic() >= end:
                missing = [rank for rank in self.others if rank not in answered]
                self.leave()
                raise CannotMeasure(
                    f"{ranks_text(missing)} of {self.place.world} did not begin within "
                    f"{self.meet_s:.0f} s",
                    f"{SHARED_OUT}; unset RANK and WORLD_SIZE to profile one process",
                )
            time.sleep(LOOK_S)

    def _arrive(self) -> str:
        token = secrets.token_hex(8)
        self._write(self.lobby / f"hello-{self.rank}.json", token=token, **_own())
        answer = self.lobby / f"welcome-{self.rank}.json"
        end = time.monotonic() + self.meet_s
        while time.monotonic() < end:
            welcome = _read(answer)
            if welcome.get("token") == token:
                return str(welcome.get("run", ""))
            time.sleep(LOOK_S)
        raise CannotMeasure(
            f"rank 0 did not answer rank {self.rank} within {self.meet_s:.0f} s", SHARED_OUT
        )

    def _beat(self) -> None:
        count = 0
        while self.folder.is_dir() and not self._stop.is_set():
            count += 1
            self._write(self.folder / f"alive-{self.rank}", count=count, **_own())
            self._stop.wait(BEAT_S)

    def end(self, code: int | None, error: str, interrupted: bool = False) -> None:
        """Report to the other ranks that the program of this one ended."""
        path = self.folder / f"ended-{self.rank}.json"
        self._write(path, code=code, error=error, interrupted=interrupted)

    def ended(self, rank: int) -> dict[str, Any]:
        """Return how the program of *rank* ended (`code`, `error`, `interrupted`); empty while it
        runs."""
        return _read(self.folder / f"ended-{rank}.json")

    def absent(self, rank: int) -> str:
        """Return why *rank* will not report; empty for one that runs or has written its records.

        Rank 0 reports after its program has ended, so it has to live until then.
        """
        if self.first and self.ended(rank):
            return ""
        if not self.folder.is_dir():
            return "rank 0 removed the run's folder"
        alive, now = _read(self.folder / f"alive-{rank}"), time.monotonic()
        count = str(alive.get("count", ""))
        if rank not in self._seen or self._seen[rank][0] != count:
            self._seen[rank] = count, now
        if alive and not _is_alive(alive) and not (self.first and self.ended(rank)):
            return f"its gpuperf process {alive.get('pid')} died"
        silent_s = now - self._seen[rank][1]
        return f"it was silent for {silent_s:.0f} s" if silent_s > SILENT_S else ""

    def failed(self, interrupted: bool = True) -> str:
        """Return which of the ranks that this one observes failed, and why; empty if none did.

        Ranks that a Ctrl-C ended count as failed if *interrupted*.
        """
        reasons: dict[str, list[int]] = {}
        for rank in self.others:
            ended = self.ended(rank)
            reason = self.absent(rank)
            if ended and ended.get("code") != 0 and (interrupted or not ended.get("interrupted")):
                reason = str(ended.get("error") or f"it ended with {ended.get('code')}")
            if reason:
                reasons.setdefault(reason, []).append(rank)
        return "; ".join(f"{named(ranks)}: {reason}" for reason, ranks in reasons.items())

    def lost(self) -> str:
        """Return why this rank's program cannot go on: another rank failed `grace_s` seconds ago,
        for which it may wait for ever in a collective. Empty while it can."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + self._pause_s
            self._failed = self.failed()
        if not self._failed:
            return ""
        self._lost_at = self._lost_at or now
        return self._failed if now - self._lost_at >= self.grace_s else ""

    def await_others(self, patience_s: float | None = None) -> dict[int, str]:
        """Wait until the programs of all others have ended, and return why each of the others that
        will not report does not.

        A rank that lives may take any time, or *patience_s* seconds. For rank 0 it ends with the
        removal of the folder.
        """
        end = None if patience_s is None else time.monotonic() + patience_s
        while True:
            left = [rank for rank in self.others if not (self._is_over(rank) or self.absent(rank))]
            late = end is not None and time.monotonic() >= end
            if not left or late:
                break
            time.sleep(self._pause_s)
        absent = {rank: self.absent(rank) for rank in self.others}
        absent |= {rank: "its program had not ended" for rank in left}
        return {rank: reason for rank, reason in absent.items() if reason}

    def _is_over(self, rank: int) -> bool:
        """Return whether *rank* is done: rank 0 once it has reported."""
        return bool(self.ended(rank)) if self.first else not self.folder.is_dir()

    def leave(self) -> None:
        """End the signs of life; rank 0 removes the folder."""
        self._stop.set()
        if self.first:
            gone = self.lobby / f".{self.run}"
            with contextlib.suppress(OSError):  # at once, or a rank could write into it meanwhile
                self.folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            shutil.rmtree(self.lobby, ignore_errors=True)

    def _write(self, path: Path, **values: object) -> None:
        with contextlib.suppress(OSError):  # rank 0 has removed the folder
            write_atomically(path, json.dumps(values))


def ranks_text(ranks: list[int]) -> str:
    """Return `rank 1`, or `ranks 1, 3`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"


def _own() -> dict[str, object]:
    return {"host": socket.gethostname(), "pid": os.getpid()}


def _is_alive(values: dict[str, Any]) -> bool:
    """Return whether the process of *values* lives; True for one of another host."""
    if values.get("host") != socket.gethostname():
        return True
    try:
        os.kill(int(values.get("pid", 0)), 0)
    except PermissionError:
        return True
    except (ProcessLookupError, ValueError):
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    """Return the JSON object in *path*; empty if there is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
