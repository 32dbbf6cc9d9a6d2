"""Agree with the other ranks of a distributed program on the number of steps of each pass.

A rank that chose by its own clock would trace other steps than the others. Rank 0 chooses after its
warm-up, and writes the numbers to a file that the other ranks read. The program's process groups
are not used: a collective of gpuperf's would change what is measured, and could wait for ever.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from gpuperf.files import write_atomically
from gpuperf.model.program import PASSES, PassName, PassResult
from gpuperf.model.protocol import Profile

PATIENCE_S = 20.0  # seconds to wait for rank 0, which reaches the same step as this rank
LOOK_S = 0.002  # seconds between two looks at the file

ENDED_0 = "ended-0.json"  # what gpuperf writes there once the program of rank 0 has ended

Passes = list[tuple[PassName, int]]


@dataclass(frozen=True)
class Agreement:
    """The choice of rank 0, in a file of *folder* for each region; this process is *rank*."""

    folder: Path
    rank: int
    patience_s: float = PATIENCE_S

    def settle(self, region: str, passes: Passes) -> Passes:
        """Return the *passes* of *region* with the steps that rank 0 chose; rank 0's are its own.

        Without an answer of rank 0 within `patience_s` seconds they are those of *passes*: the
        report compares the steps of the ranks, and says where they differ.
        """
        name = f"steps-{blake2b(region.encode(), digest_size=8).hexdigest()}.json"
        path = self.folder / name
        if self.rank == 0:
            with contextlib.suppress(OSError):  # the folder is gone, and no rank waits any more
                write_atomically(path, json.dumps(dict(passes)))
            return passes
        return _with_steps(passes, self._read(path))

    def _read(self, path: Path) -> object:
        end = time.monotonic() + self.patience_s
        over = self.folder / ENDED_0
        while self.folder.is_dir() and not over.exists() and time.monotonic() < end:
            try:
                return json.loads(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                time.sleep(LOOK_S)
            except (OSError, ValueError):
                break
        return {}


def agreement_of(request: Profile) -> Agreement | None:
    """Return the agreement of the ranks of *request*; None for a program of one process."""
    return Agreement(Path(request.ranks), request.rank) if request.ranks else None


def _with_steps(passes: Passes, chosen: object) -> Passes:
    counts = chosen if isinstance(chosen, dict) else {}
    steps = {name: n for name in PASSES if isinstance(n := counts.get(name), int) and n > 0}
    return [(name, steps.get(name, wanted)) for name, wanted in passes]


def after_meeting(result: PassResult) -> PassResult:
    """Return the *result* of a trace without its first step, if it has others.

    In the first traced step a rank waits for another whose profiler starts later; waits of 25 and
    99 ms were seen. They are none of the program's.
    """
    if result.name != "trace" or result.steps < 2:
        return result
    step = next(step for step in itertools.count() if step not in result.dropped)
    dropped = tuple(sorted((*result.dropped, step)))
    return replace(result, steps=result.steps - 1, first=result.first + 1, dropped=dropped)
