"""Is the worker that the command line begins first taken by the launcher, or ended?"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuperf.__main__ import starts_worker
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


@pytest.mark.parametrize(
    "words", [["--threads=1"], ["--processes", "3"], ["-h"], ["--hosts", "a"], ["--debug"]]
)
def test_no_worker_is_begun_that_would_be_another(words: list[str]) -> None:
    assert starts_worker(["roofline", "matmul", "--sizes", "64"])
    assert not starts_worker(["roofline", "matmul", *words])


@pytest.mark.parametrize("words", [[], ["--help"], ["list"], ["gate", "ab"], ["nosuch"]])
def test_no_worker_is_begun_for_a_verb_that_measures_no_cases_itself(words: list[str]) -> None:
    assert not starts_worker(words)


def test_no_worker_takes_the_number_of_a_closed_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert not starts_worker(["roofline", "copy"])


PROBE = """
import sys
from gpuperf import __main__ as front
from gpuperf.run import starting
front._run = lambda: print("worker:", len(starting._begun), "typer:", "typer" in sys.modules)
front.main()
print("left:", len(starting._begun))
"""


def test_the_worker_begins_before_the_command_line_is_imported() -> None:
    command = [sys.executable, "-P", "-c", PROBE, "roofline", "copy"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == "worker: 1 typer: False\nleft: 0\n"
    assert ended.stderr == ""


def test_a_bad_option_ends_at_once_and_leaves_no_worker(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "gpuperf", "roofline", "copy", "--budget", "never"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.count("\n") <= 2  # the error and its hint


def test_a_workload_is_found_in_its_own_file() -> None:
    workloads, broken = load_source("gpuperf.kernels")
    assert not broken
    for name, workload in workloads.items():
        assert find_builtin("gpuperf.kernels", name) is workload
    assert find_builtin("gpuperf.kernels", "nothing") is None
    assert find_builtin("./mine.py", "copy") is None
