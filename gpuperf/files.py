"""Read and write small files safely, even if an attacker controls the path.

Readers open regular files only: a FIFO or a device raises an `OSError` instead of blocking forever.
Writers never follow a symbolic link and never leave a partial file: they write under a random name
beside the target, and rename. The `strerror` of every `OSError` can be printed as it is, also for a
path that is too long or has a NUL.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from gpuperf.errors import UsageError


def open_regular(path: str | Path) -> BufferedReader:
    """Open *path*, or the file that it links to, for reading.

    Raises: OSError, also if it is not a regular file.
    """
    handle = _open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "it is not a regular file", str(path))
    return os.fdopen(handle, "rb")


def is_regular(path: str | Path) -> bool:
    """Whether *path* is, or links to, a regular file; False for an invalid name."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def read_regular(path: str | Path, limit_bytes: int) -> bytes:
    """Return the contents of *path*. Raises: OSError, also if they exceed *limit_bytes*."""
    with open_regular(path) as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise OSError(errno.EFBIG, f"it is over {_size(limit_bytes)}", str(path))
    return data


def write_atomically(path: str | Path, data: bytes | str, mode: int = 0o644) -> None:
    """Write *data* as the file *path*, whole or not at all; its folder must exist.

    *mode* applies before the umask. Raises: OSError, also if *path* exists and is not a regular
    file: the rename would silently replace a link, or `/dev/null`.
    """
    target, content = Path(path), data.encode() if isinstance(data, str) else data
    _refuse_special(target)
    part = target.with_name(f".gpuperf-{secrets.token_hex(8)}.part")
    handle = _open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@contextlib.contextmanager
def locked(path: str | Path, wait: bool = True) -> Iterator[None]:
    """Hold the exclusive lock of the file *path*, which is created if it is missing.

    Only processes that call this exclude each other; the end of a process releases its lock.
    Raises: OSError; BlockingIOError if another process holds the lock and *wait* is False.
    """
    handle = _open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def _open(path: str | Path, flags: int, mode: int = 0o600) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, mode)
    except ValueError:
        raise OSError(errno.EINVAL, "its name has a NUL", str(path)) from None


def _refuse_special(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except ValueError:
        raise OSError(errno.EINVAL, "its name has a NUL", str(path)) from None
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _size(limit_bytes: int) -> str:
    return f"{limit_bytes >> 20} MiB" if limit_bytes >= 1 << 20 else f"{limit_bytes:,} bytes"


def check_writable(folder: Path, option: str = "--out") -> None:
    """Check that files can be written to *folder*, which *option* names, before minutes are spent.

    Makes the folder. Raises: UsageError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, probe = tempfile.mkstemp(prefix=".gpuperf-", dir=folder)
        os.close(handle)
        Path(probe).unlink()
    except OSError as error:
        raise UsageError(
            f"nothing can be written to {folder}: {error.strerror}", f"choose another {option}"
        ) from None
