"""Run a script as `__main__`, with its benchmark functions replaced."""

from __future__ import annotations

import ctypes
import runpy
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuperf.bench.inside.capture import Capture
from gpuperf.bench.inside.replace import replaced
from gpuperf.run.store import read_run

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Have the kernel end this process when the process that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Run the script that the arguments name: script, run file, id, precision, budget, the run file
    that is continued (or nothing), and the arguments of the script."""
    file, part, run, precision, budget_s, earlier, *words = sys.argv[1:]
    taken = (Path(file), Path(part), run, float(precision), float(budget_s), tuple(words))
    run_script(Capture(*taken, earlier=read_run(earlier) if earlier else None), words)


def run_script(capture: Capture, words: Sequence[str]) -> None:
    """Run the script of *capture* with the arguments *words*. Raises: what it raises."""
    file = capture.file
    source = file.read_text(encoding="utf-8", errors="replace")
    sys.argv = [str(file), *words]
    sys.path.insert(0, str(file.parent))
    try:
        with replaced(capture, source):
            runpy.run_path(str(file), run_name="__main__")
    finally:
        capture.close()
