"""Store the choices of autotuners, so that later processes use the same configuration.

Environment variables name the folders: `GPUPERF_CHOICES` stores and returns choices, and
`GPUPERF_CHOICES_OF_BASE` has those of the base of a gate, which the head prefers. Without these
variables nothing is stored.
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
Place = tuple[str, int]  # a case, and the number of the kernel among those that its build tunes


def read_choice(
    variable: str, place: Place, candidates: Sequence[Mapping[str, int]] | None = None
) -> Mapping[str, int] | None:
    """Return the choice for *place* in the folder that *variable* names; None if there is none, or
    if the stored choice is not among *candidates*, where these are given."""
    folder = os.environ.get(variable)
    if not folder:
        return None
    with contextlib.suppress(OSError, ValueError, RecursionError):
        choice = json.loads(read_regular(_file(folder, place), LARGEST))
        if candidates is None:
            whole = isinstance(choice, dict) and all(type(v) is int for v in choice.values())
            return choice if whole else None
        return next((candidate for candidate in candidates if dict(candidate) == choice), None)
    return None


def write_choice(place: Place, chosen: Mapping[str, int]) -> None:
    """Store *chosen* for later processes; a folder that cannot be written is not an error."""
    folder = os.environ.get(KEPT)
    if folder:
        with contextlib.suppress(OSError):
            Path(folder).mkdir(parents=True, exist_ok=True)
            write_atomically(_file(folder, place), json.dumps(dict(chosen)))


def _file(folder: str, place: Place) -> Path:
    return Path(folder) / f"{sha256(repr(place).encode()).hexdigest()[:24]}.json"
