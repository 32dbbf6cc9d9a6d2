"""Run a benchmark script in a process of its own, and collect the run that it wrote."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from gpuperf.bench.key import command_of, key_of
from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.files import write_atomically
from gpuperf.model.codec import encode
from gpuperf.model.record import Run
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import new_run_id
from gpuperf.run.store import read_run
from gpuperf.verb.progress import say

START = "from gpuperf.bench.inside.main import end_with_parent, main; end_with_parent(); main()"
CHILD = ("-P", "-c", START)
FUNCTIONS = "do_bench, do_bench_cudagraph, perf_report, bench_gpu_time"


@dataclass(frozen=True)
class Plan:
    """How scripts are run: the folder of the run files, precision and budget of each call, the most
    seconds of a script, its arguments, and the run file that it continues."""

    out: Path
    precision: float
    budget_s: float
    timeout_s: float | None = None
    words: tuple[str, ...] = ()
    earlier: Path | None = None


@dataclass(frozen=True)
class ScriptRun:
    """The run of a script, its run file, and a sentence on how it failed, which may be empty."""

    run: Run
    path: Path
    failure: str = ""


def resumed(plan: Plan, file: Path, path: Path) -> Plan:
    """Return *plan* with the precision and the budget of the run in *path*, which it continues.

    Raises: RunFileError; UsageError for a run of other words than those of *file*, or of an older
    text of it.
    """
    run = read_run(path)
    command = command_of(file.name, plan.words)
    if run.header.command != command:
        was = shlex.join(run.header.command) or "another command"
        raise UsageError(
            f"{path} is a run of `{was}`, and not of `{shlex.join(command)}`",
            "give the script and the arguments of the run",
        )
    if path.suffix != ".jsonl":
        raise UsageError(
            f"{path} is not a plain run file, so nothing can be added", f"gunzip {path}"
        )
    began = _instant(run.header.created)
    if began is not None and datetime.fromtimestamp(file.stat().st_mtime, UTC) > began:
        raise UsageError(f"{file} was changed after the run began", "run it without --resume")
    contract = run.header.contract
    return replace(
        plan,
        out=path.parent,
        precision=contract.precision,
        budget_s=contract.budget_s,
        earlier=path,
    )


def _instant(text: str) -> datetime | None:
    """Return the time that *text* gives, in UTC if it names no zone; None if it gives none."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def run_script(file: Path, plan: Plan) -> ScriptRun:
    """Run the script *file*, for `timeout_s` seconds at the most, and return what it measured.

    What the script prints goes to stderr. Raises: CannotMeasure if it measured nothing.
    """
    identity = new_run_id("bench", file.stem[:40])
    path, part = plan.out / f"{identity}.jsonl", plan.out / f"{identity}.part.jsonl"
    path = plan.earlier or path
    before = str(plan.earlier.absolute()) if plan.earlier else ""
    own = (str(plan.precision), str(plan.budget_s), before)
    words = (str(file.resolve()), str(part.absolute()), identity, *own, *plan.words)
    try:
        failure = _ending([sys.executable, *CHILD, *words], plan.timeout_s)
    except KeyboardInterrupt:
        if part.exists():
            _finished(part, path, plan.earlier)
            say(f"run file: {path}")
        raise
    if plan.earlier is not None and not part.exists() and not failure:
        say(f"{path}: no call of {file} was missing")
        return ScriptRun(read_run(plan.earlier), path, failure)
    if not part.exists() and failure:
        hint = f"see what it printed above; `python {file}` shows whether it runs alone"
        raise CannotMeasure(f"{file} {failure} before anything was timed", hint)
    if not part.exists():
        raise CannotMeasure(
            f"{file} ended without a call of {FUNCTIONS}",
            f"`python {file}` must time something with triton.testing or flashinfer.testing",
        )
    return ScriptRun(_finished(part, path, plan.earlier), path, failure)


def _finished(part: Path, path: Path, earlier: Path | None) -> Run:
    """Return the run that the script wrote into *part*, after the records of *earlier*; it becomes
    the whole run file *path*."""
    run = read_run(part)
    if earlier is not None:
        begun = read_run(earlier)
        added = tuple(replace(record, run=begun.header.run) for record in run.records)
        kept = {key_of(record): record for record in (*begun.records, *added)}
        run = _whole(replace(begun, records=tuple(kept.values())))
        lines = (encode(value) for value in (run.header, *run.records))
        write_atomically(path, b"".join(line + b"\n" for line in lines))
    else:
        run = _whole(run)
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
