"""Small files are read and written safely, whatever stands in their place."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from gpuperf.files import is_regular, locked, open_regular, read_regular, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_written_is_read_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, "1 é")
    write_atomically(path, b"22")
    assert read_regular(path, 2) == b"22"
    assert names(tmp_path) == ["a.json"]


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"123")
    assert is_regular(path)
    assert read_regular(path, 3) == b"123"
    with pytest.raises(OSError, match="over 2 bytes"):
        read_regular(path, 2)


def test_a_fifo_is_refused_at_once_and_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        write_atomically(tmp_path / "fifo", b"")
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 9) == b"1"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(tmp_path, 9)
    with pytest.raises(OSError, match="not a regular file"):
        write_atomically(tmp_path, b"")


def test_a_link_is_not_followed_by_a_writer_nor_by_a_lock(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"1")
    (tmp_path / "link").symlink_to("precious")
    with pytest.raises(OSError, match="symbolic link"):
        write_atomically(tmp_path / "link", b"2")
    with pytest.raises(OSError), locked(tmp_path / "link"):
        pass
    assert (tmp_path / "precious").read_bytes() == b"1"
    assert names(tmp_path) == ["link", "precious"]


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_a_name_that_no_file_can_have_is_an_oserror_with_a_reason(
    name: str, tmp_path: Path
) -> None:
    for attempt in (
        lambda: read_regular(tmp_path / name, 9),
        lambda: write_atomically(tmp_path / name, b""),
        lambda: locked(tmp_path / name).__enter__(),
    ):
        with pytest.raises(OSError) as caught:
            attempt()
        assert caught.value.strerror
    assert not is_regular(tmp_path / name)
    assert names(tmp_path) == []


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    write_atomically(path, b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_the_mode_of_a_written_file_holds_before_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_atomically(tmp_path / "open", b"")
        write_atomically(tmp_path / "private", b"", 0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


def test_a_lock_excludes_another_process_until_it_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with locked(path), pytest.raises(BlockingIOError), locked(path, wait=False):
        pass
    counter = tmp_path / "counter"
    counter.write_text("0")
    spawned = multiprocessing.get_context("fork")
    workers = [spawned.Process(target=_count_up, args=(path, counter)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert counter.read_text() == "200"


def _count_up(lock: Path, counter: Path) -> None:
    for _ in range(50):
        with locked(lock):
            write_atomically(counter, str(int(counter.read_text()) + 1))
