"""Store in files what takes long to compute again: the catalogue, ceilings, noise."""

from __future__ import annotations

import contextlib
import errno
import os
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from gpuperf.files import read_regular, write_atomically
from gpuperf.model.codec import decode, encode

LARGEST = 256 << 20  # bytes of one value

T = TypeVar("T")


def cache_folder() -> Path:
    """Return `$GPUPERF_CACHE`, or `gpuperf` in the user's cache folder."""
    if folder := os.environ.get("GPUPERF_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuperf"


def key_of(*facts: object) -> str:
    """Hash *facts* to the short name of a cache entry."""
    return sha256(repr(facts).encode()).hexdigest()[:24]


def private_folder(kind: str) -> Path:
    """Return the folder for values of a *kind*, and make it if needed, writable by this user only.

    A folder that others can write to (older versions made such ones under an open umask) loses that
    permission and all its files. Raises: OSError, also for another user's folder.
    """
    folder = cache_folder() / kind
    for made in (folder.parent, folder):
        made.parent.mkdir(parents=True, exist_ok=True)
        made.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "another user owns it", str(folder))
    if status.st_mode & 0o022:
        folder.chmod(0o700)
        for file in folder.iterdir():
            file.unlink()
    return folder


def fetch(kind: str, key: str, type_: type[T]) -> T | None:
    """Return the value stored under *key*; None if there is none, or it cannot be read."""
    try:
        return decode(read_regular(private_folder(kind) / f"{key}.json", LARGEST), type_)
    except (OSError, ValueError):
        return None


def keep(kind: str, key: str, value: object) -> None:
    """Store *value* atomically under *key*; a failure to write is ignored."""
    with contextlib.suppress(OSError):
        write_atomically(private_folder(kind) / f"{key}.json", encode(value), 0o600)


def fetch_newest(kind: str, type_: type[T]) -> T | None:
    """Return the value of *kind* that was stored last; None if there is none, or it is broken."""
    try:
        files = sorted(private_folder(kind).glob("*.json"), key=lambda file: file.stat().st_mtime)
    except OSError:
        return None
    return fetch(kind, files[-1].stem, type_) if files else None
