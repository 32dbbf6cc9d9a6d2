"""Write a run file: a header, then a record a line, each flushed as it comes.

One process writes a file at a time (flock). Everything written is also kept in memory, so that a
file that is removed, moved, replaced or cut while the run goes on costs no record: the run goes on
in another file, and the error at its end names it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import tempfile
from pathlib import Path
from types import TracebackType

from gpuperf.errors import CannotMeasure, Incomplete, UsageError
from gpuperf.model.codec import encode
from gpuperf.model.record import Header, Record

CHUNK = 1 << 20
GZIP = b"\x1f\x8b"  # how a compressed file begins


class RunWriter:
    """Appends to a run file; a context manager."""

    def __init__(self, path: Path, fresh: bool = False) -> None:
        """Open *path* and lock it; a *fresh* one must not be there yet, not even as a link.

        Raises: UsageError where it cannot be written or is compressed, CannotMeasure where another
        process writes.
        """
        self.path = path
        self._lost = ""  # what became of the file that was opened first
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_EXCL if fresh else 0)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, flags, 0o644)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(
                f"{path} cannot be written: {reason}", "choose another --out"
            ) from None
        self._regular = stat.S_ISREG(os.fstat(self._file).st_mode)
        self._kept: list[bytes] = []
        if self._regular:
            try:
                _lock(self._file, path)
                if os.pread(self._file, len(GZIP), 0) == GZIP:
                    raise UsageError(f"{path} is compressed, so nothing is added", f"gunzip {path}")
            except (CannotMeasure, UsageError):
                os.close(self._file)
                raise
            self._kept = list(_chunks(self._file))
        self._size = sum(map(len, self._kept))

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.verify()
        finally:
            os.close(self._file)

    def header(self, header: Header) -> None:
        """Begin a run. A newline goes first, so that files merge with `cat`."""
        self._write(b"\n" + encode(header) + b"\n")

    def record(self, record: Record) -> None:
        """Add a record. Raises: Incomplete when the disk is full."""
        self._write(encode(record) + b"\n")

    def resume(self) -> None:
        """Continue a file whose last line may be cut off."""
        self._write(b"\n")

    def verify(self) -> None:
        """Look whether everything written is in the file.

        Raises: CannotMeasure, once, where the run had to go on in another file, with its name.
        """
        self._rescue()
        lost, self._lost = self._lost, ""
        if lost:
            raise CannotMeasure(
                f"{lost} while it was written; the whole run is in {self.path}",
                "let run files lie until the run has ended",
            )

    def _write(self, line: bytes) -> None:
        self._kept.append(line)
        self._size += len(line)
        try:
            _write_all(self._file, line)
        except OSError as error:
            self._size = 0  # what is there is known to be too short
            raise Incomplete(
                f"{self.path} cannot be written on: {error.strerror}",
                f"what was written stands; make room, then --resume {self.path}",
            ) from None
        self._rescue()

    def _rescue(self) -> None:
        """Go on in another file where this one was removed, moved, replaced or cut."""
        fate = self._fate() if self._regular else ""
        if not fate:
            return
        self._lost = self._lost or f"{self.path} {fate}"
        name = f"{self.path.stem}-rescued-{secrets.token_hex(3)}.jsonl"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_EXCL
        for folder in (self.path.parent, Path(), Path(tempfile.gettempdir())):
            with contextlib.suppress(OSError):
                file = os.open(folder / name, flags, 0o644)
                os.close(self._file)
                self._file, self.path = file, folder / name
                _lock(file, self.path)
                for line in self._kept:
                    _write_all(file, line)
                return
        raise Incomplete(
            f"{self._lost}, and no other file can be written",
            "make room here or in the temporary folder, and measure again",
        )

    def _fate(self) -> str:
        """What became of the file, as the end of a sentence; nothing where all is well."""
        here = os.fstat(self._file)
        if here.st_size < self._size:
            return "was cut short"
        try:
            there = self.path.stat()
        except OSError:
            return "was removed or moved"
        same = (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
        return "" if same else "was replaced"


def _write_all(file: int, line: bytes) -> None:
    """Raises: OSError, also where only a part was taken and then no more."""
    rest = memoryview(line)
    while rest:
        written = os.write(file, rest)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


def _chunks(file: int) -> list[bytes]:
    """What the file holds already."""
    found, at = [], 0
    while chunk := os.pread(file, CHUNK, at):
        found.append(chunk)
        at += len(chunk)
    return found


def _lock(file: int, path: Path) -> None:
    """Raises: CannotMeasure where another process writes to *path*."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CannotMeasure(
            f"{path} is being written by {_holder(file)}", "wait until that has ended"
        ) from None
    except OSError:
        pass  # a file system without locks


def _holder(file: int) -> str:
    """The process that holds the lock of *file*, in words."""
    found = os.fstat(file)
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and place in fields:
                return f"process {fields[fields.index(place) - 1]}"
    return "another process"
