"""Keep what an autotuner chose for a kernel beyond the life of its process.

Environment variables name the folders: `GPUPERF_CHOICES` is where choices are kept and found, and
`GPUPERF_CHOICES_OF_BASE` has those of the base of a gate, which the head prefers. Without them
nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from gpuperf.files import read_regular, write_atomically

KEPT, PREFERRED = "GPUPERF_CHOICES", "GPUPERF_CHOICES_OF_BASE"
LARGEST = 10_000  # bytes of a choice
Place = tuple[str, int]  # a case, and which of the kernels that its build tunes


def read_choice(
    variable: str, place: Place, candidates: Sequence[Mapping[str, int]]
) -> Mapping[str, int] | None:
    """Return what was chosen at *place* in the folder that *variable* names; None where nothing
    was, or none of *candidates*."""
    folder = os.environ.get(variable)
    if not folder:
        return None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(read_regular(_file(folder, place), LARGEST))
        return next((candidate for candidate in candidates if dict(candidate) == found), None)
    return None


def write_choice(place: Place, chosen: Mapping[str, int]) -> None:
    """Keep *chosen* for later processes; a folder that cannot be written is no error."""
    folder = os.environ.get(KEPT)
    if folder:
        with contextlib.suppress(OSError):
            Path(folder).mkdir(parents=True, exist_ok=True)
            write_atomically(_file(folder, place), json.dumps(dict(chosen)))


def _file(folder: str, place: Place) -> Path:
    return Path(folder) / f"{sha256(repr(place).encode()).hexdigest()[:24]}.json"
