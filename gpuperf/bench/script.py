"""Run a benchmark script in a process of its own, and collect the run that it wrote."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuperf.errors import CannotMeasure
from gpuperf.model.record import Run
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import new_run_id
from gpuperf.run.store import read_run
from gpuperf.verb.progress import say

START = "from gpuperf.bench.inside.main import end_with_parent, main; end_with_parent(); main()"
CHILD = ("-P", "-c", START)
FUNCTIONS = "do_bench, do_bench_cudagraph, perf_report, bench_gpu_time"


@dataclass(frozen=True)
class ScriptRun:
    """The run of a script, its run file, and a sentence on how it failed, which may be empty."""

    run: Run
    path: Path
    failure: str = ""


def run_script(
    file: Path, out: Path, precision: float, budget_s: float, timeout_s: float | None
) -> ScriptRun:
    """Run the script *file*, for *timeout_s* seconds at the most, and return what it measured.

    What the script prints goes to stderr. Raises: CannotMeasure if it measured nothing.
    """
    identity = new_run_id("bench", file.stem[:40])
    path, part = out / f"{identity}.jsonl", out / f"{identity}.part.jsonl"
    words = (str(file.resolve()), str(part.absolute()), identity, str(precision), str(budget_s))
    try:
        failure = _ending([sys.executable, *CHILD, *words], timeout_s)
    except KeyboardInterrupt:
        if part.exists():
            _finished(part, path)
            say(f"run file: {path}")
        raise
    if not part.exists():
        raise CannotMeasure(
            f"{file} {failure}" if failure else f"{file} ended without a call of {FUNCTIONS}",
            f"`python {file}` must time something with triton.testing or flashinfer.testing",
        )
    return ScriptRun(_finished(part, path), path, failure)


def _finished(part: Path, path: Path) -> Run:
    """Return the run that the script wrote into *part*, which becomes the whole run file *path*."""
    run = _whole(read_run(part))
    with RunWriter(path, fresh=True) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    part.unlink()
    return run


def _ending(command: Sequence[str], timeout_s: float | None) -> str:
    """Run *command* to its end; return how it failed, or nothing if it succeeded."""
    environment = {**os.environ, "MPLBACKEND": "Agg"}  # plots are files, and open no window
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=2, env=environment, start_new_session=True
    ) as process:
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"was ended after {timeout_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
    if code < 0:
        return f"died by {signal.Signals(-code).name}"
    return f"ended with exit code {code}" if code else ""


def _whole(run: Run) -> Run:
    """Return *run* with the cases and the contracts of its records in the header."""
    contracts = list(dict.fromkeys(record.contract for record in run.records))
    cases = {record.case.id: record.case for record in run.records}
    header = replace(
        run.header, plan=tuple(cases.values()), contract=contracts[0], variants=tuple(contracts[1:])
    )
    return replace(run, header=header)
