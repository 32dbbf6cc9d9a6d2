"""Make the files that a submission's process shares with the judge, and detect changes of them.

The submission may replace a file by a link, a FIFO or another file, or cut it. The judge would then
write elsewhere, wait, or be killed by SIGBUS. So files are made by descriptors of folders that were
opened before, and compared with their own descriptors whenever all its processes are stopped.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from gpuperf.errors import CannotMeasure
from gpuperf.judge.seat import Ended

SPARE = 4  # times the bytes of a file that must be free in its folder
KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "another file",
}


@dataclass(frozen=True)
class _File:
    """A file that was made: its descriptor, and its status then."""

    handle: int
    status: os.stat_result


@dataclass
class SharedFiles:
    """The files of some folders; the first breach is kept."""

    _folders: dict[Path, int] = field(default_factory=dict)
    _files: dict[Path, _File] = field(default_factory=dict)
    _breach: str = ""

    def add(self, folder: Path) -> None:
        """Open *folder*, before a submission could replace it."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._folders[folder] = os.open(folder, flags)

    def make(self, path: Path, size: int) -> int:
        """Make the file *path* of *size* zeros for this user alone, once; return its descriptor.

        Raises: CannotMeasure without room; Ended if the path is taken.
        """
        if path in self._files:
            return self._files[path].handle
        folder = self._folders[path.parent]
        room = os.fstatvfs(folder)
        if (SPARE - 1) * size > room.f_bavail * room.f_frsize:
            raise CannotMeasure(f"{path.parent} has no room for {size >> 20} MiB of inputs")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(path.name, flags, 0o600, dir_fd=folder)
        except (FileExistsError, FileNotFoundError) as error:
            taken = isinstance(error, FileExistsError)
            what = "was made before the judge made it" if taken else "has no folder any more"
            raise self._broken(path, what) from None
        try:
            # Takes the room now: who writes to a file without room is killed by SIGBUS.
            if size:
                os.posix_fallocate(handle, 0, size)
        except OSError as error:
            os.close(handle)
            os.unlink(path.name, dir_fd=folder)
            reason = f"{path.parent} has no room for {size >> 20} MiB: {error.strerror}"
            raise CannotMeasure(reason) from None
        self._files[path] = _File(handle, os.fstat(handle))
        return handle

    def remove(self, path: Path) -> None:
        """Remove the file *path*, if it was made."""
        if (file := self._files.pop(path, None)) is not None:
            os.close(file.handle)
            with contextlib.suppress(OSError):
                os.unlink(path.name, dir_fd=self._folders[path.parent])

    def forget(self, folder: Path) -> None:
        """Close the descriptors of *folder* and of its files."""
        for path in [path for path in self._files if path.parent == folder]:
            os.close(self._files.pop(path).handle)
        if (handle := self._folders.pop(folder, None)) is not None:
            os.close(handle)

    def close(self) -> None:
        """Close the descriptors of all folders and files."""
        for folder in [*self._folders]:
            self.forget(folder)

    def breach(self) -> str:
        """Return what became of the first file that is not as it was made; empty if all are."""
        for path, file in self._files.items():
            if not self._breach and (what := _change(path, file)):
                self._broken(path, what)
        return self._breach

    def check(self) -> None:
        """Raises: Ended after a breach."""
        if breach := self.breach():
            raise Ended("tampered", breach)

    def _broken(self, path: Path, what: str) -> Ended:
        self._breach = (
            self._breach or f"the file {path.name!r}, which the judge shares with it, {what}"
        )
        return Ended("tampered", self._breach)


def _change(path: Path, file: _File) -> str:
    """Return how *file* or what *path* names differs from what was made; empty if it does not."""
    then, now = file.status, os.fstat(file.handle)
    try:
        named = os.lstat(path)
    except OSError:
        return "is gone"
    if (named.st_dev, named.st_ino) != (then.st_dev, then.st_ino):
        return f"was replaced by {KINDS.get(stat.S_IFMT(named.st_mode), 'a special file')}"
    if now.st_size != then.st_size:
        return f"has {now.st_size} bytes instead of {then.st_size}"
    if (now.st_mode, now.st_uid) != (then.st_mode, then.st_uid):
        return "has another owner or other permissions"
    return ""
