"""Where is kept what costs time to find out again: the catalogue, the measured ceilings?"""

from __future__ import annotations

import contextlib
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from gpuperf.model.codec import decode, encode

__all__ = ["cache_folder", "fetch", "keep", "key_of"]

T = TypeVar("T")


def cache_folder() -> Path:
    """`$GPUPERF_CACHE`, or `gpuperf` in the user's cache folder."""
    own = os.environ.get("GPUPERF_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuperf"


def key_of(*facts: object) -> str:
    """A short name for these facts."""
    return sha256(repr(facts).encode()).hexdigest()[:24]


def fetch(kind: str, key: str, type_: type[T]) -> T | None:
    """What was kept under *key*, or None: a cache that cannot be read is no cache."""
    try:
        return decode((cache_folder() / kind / f"{key}.json").read_bytes(), type_)
    except (OSError, ValueError):
        return None


def keep(kind: str, key: str, value: object) -> None:
    """Keep *value*, whole or not at all; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        folder = cache_folder() / kind
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(encode(value))
        Path(name).replace(folder / f"{key}.json")
