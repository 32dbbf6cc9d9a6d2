"""Write a run file: a header, then a line for each record, flushed as it comes.

One process writes a file at a time (flock). All that is written is in memory too: if the file is
removed, moved, replaced or cut during the run, no record is lost, since the run continues in
another file, which the error at its end names.
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
from gpuperf.run.embedded import DOCTYPE

CHUNK = 1 << 20
GZIP = b"\x1f\x8b"  # how a compressed file begins


class RunWriter:
    """A run file that is open for appending; a context manager."""

    def __init__(self, path: Path, fresh: bool = False) -> None:
        """Open *path* and lock it; a *fresh* one must not exist, not even as a link.

        Raises: UsageError for a file that cannot be written, is compressed or is a page,
        CannotMeasure for one that another process writes.
        """
        self.path = path
        self._lost = ""  # what happened to the first file
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
                    raise UsageError(
                        f"{path} is compressed, so nothing can be added", f"gunzip {path}"
                    )
                if os.pread(self._file, len(DOCTYPE), 0).lower() == DOCTYPE:
                    raise UsageError(
                        f"{path} is a page, so nothing can be added", "name the run file itself"
                    )
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
        """Begin a run, after a newline, so that files can be merged with `cat`."""
        self._write(b"\n" + encode(header) + b"\n")

    def record(self, record: Record) -> None:
        """Add a record. Raises: Incomplete when the disk is full."""
        self._write(encode(record) + b"\n")

    def resume(self) -> None:
        """Write a newline, since the last line of the file may be cut off."""
        self._write(b"\n")

    def verify(self) -> None:
        """Check that everything written is in the file.

        Raises: CannotMeasure, once, if the run continued in another file.
        """
        self._rescue()
        lost, self._lost = self._lost, ""
        if lost:
            raise CannotMeasure(
                f"{lost} while it was written; the whole run is in {self.path}",
                "leave run files in place until the run has ended",
            )

    def _write(self, line: bytes) -> None:
        self._kept.append(line)
        self._size += len(line)
        try:
            _write_all(self._file, line)
        except OSError as error:
            self._size = 0  # the file is known to be too short
            raise Incomplete(
                f"{self.path} cannot be written on: {error.strerror}",
                f"free some space, then measure the missing cases with --resume {self.path}",
            ) from None
        self._rescue()

    def _rescue(self) -> None:
        """Continue in another file if this one was removed, moved, replaced or cut."""
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
            "free space here or in the temporary folder, and measure again",
        )

    def _fate(self) -> str:
        """Say what happened to the file, as the end of a sentence; nothing if it is whole."""
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
    """Write all of *line*. Raises: OSError, also if the disk is full after a part."""
    rest = memoryview(line)
    while rest:
        written = os.write(file, rest)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


def _chunks(file: int) -> list[bytes]:
    chunks, offset = [], 0
    while chunk := os.pread(file, CHUNK, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return chunks


def _lock(file: int, path: Path) -> None:
    """Lock *file*. Raises: CannotMeasure where another process writes to it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CannotMeasure(
            f"{path} is being written by {_holder(file)}", "wait until that has ended"
        ) from None
    except OSError:
        pass  # a file system without locks


def _holder(file: int) -> str:
    status = os.fstat(file)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "FLOCK" in fields and place in fields:
                return f"process {fields[fields.index(place) - 1]}"
    return "another process"
