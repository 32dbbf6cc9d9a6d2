"""Where is kept what costs time to find out again: the catalogue, the measured ceilings?"""

from __future__ import annotations

import contextlib
import errno
import os
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from gpuperf.files import read_regular, write_atomically
from gpuperf.model.codec import decode, encode

LARGEST = 256 << 20  # bytes of one kept value

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


def private_folder(kind: str) -> Path:
    """The folder of what is kept of *kind*, which no other user may write.

    A folder of this user's that others may write, as older versions made it under an open umask, is
    closed and emptied: anything may be in it. Raises: OSError, also where another user owns it.
    """
    folder = cache_folder() / kind
    for made in (folder.parent, folder):
        made.parent.mkdir(parents=True, exist_ok=True)
        made.mkdir(mode=0o700, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "another user owns it", str(folder))
    if found.st_mode & 0o022:
        folder.chmod(0o700)
        for file in folder.iterdir():
            file.unlink()
    return folder


def fetch(kind: str, key: str, type_: type[T]) -> T | None:
    """What was kept under *key*, or None: a cache that cannot be read is no cache."""
    try:
        return decode(read_regular(private_folder(kind) / f"{key}.json", LARGEST), type_)
    except (OSError, ValueError):
        return None


def keep(kind: str, key: str, value: object) -> None:
    """Keep *value*, whole or not at all; a cache that cannot be written is no error."""
    with contextlib.suppress(OSError):
        write_atomically(private_folder(kind) / f"{key}.json", encode(value), 0o600)
