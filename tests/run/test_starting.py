"""Is the worker that the command line begins first taken by the launcher, or ended?"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuperf.app import _starts_worker
from gpuperf.measure.registry import find_builtin, load_source
from gpuperf.model.protocol import Hello
from gpuperf.run import starting
from gpuperf.run.launcher import LocalLauncher


def test_the_first_launcher_like_it_takes_the_worker() -> None:
    starting.begin()
    _, process = starting._begun[0]
    other = LocalLauncher(memory_bytes=1 << 40).start()
    mine = LocalLauncher().start()
    try:
        assert other.guard != process.pid
        assert mine.guard == process.pid
        assert isinstance(mine.receive(60.0), Hello)
        assert starting.taken() is None
    finally:
        other.kill()
        mine.kill()


def test_a_worker_that_nobody_takes_is_ended() -> None:
    starting.begin()
    _, process = starting._begun[0]
    starting.end()
    assert process.poll() is not None
    end = time.monotonic() + 5.0
    while Path(f"/proc/{process.pid}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{process.pid}").exists()


@pytest.mark.parametrize("words", [["--threads=1"], ["--processes", "3"], ["-h"], ["--hosts", "a"]])
def test_no_worker_is_begun_that_would_be_another(words: list[str]) -> None:
    assert _starts_worker(["matmul", "--sizes", "64"])
    assert not _starts_worker(["matmul", *words])


def test_a_workload_is_found_in_its_own_file() -> None:
    workloads, broken = load_source("gpuperf.kernels")
    assert not broken
    for name, workload in workloads.items():
        assert find_builtin("gpuperf.kernels", name) is workload
    assert find_builtin("gpuperf.kernels", "nothing") is None
    assert find_builtin("./mine.py", "copy") is None
