"""Measure the tests of a session again in fresh processes of pytest.

Two processes of unchanged code differ by more than the interval of one says. The stored gate
estimates that scatter, so it needs the times of several processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.model.codec import decode, encode
from gpuperf.model.record import Record
from gpuperf.run.store import read_run

LAST = 3  # lines of what a failed process wrote


@dataclass(frozen=True)
class Plan:
    """What a further process measures: the tests, its number, and the run file that it writes."""

    nodes: tuple[str, ...]
    index: int
    run: str


def read_plan(path: str | None) -> Plan | None:
    """Return the plan in *path*; None without a path. Raises: UsageError."""
    if not path:
        return None
    try:
        return decode(Path(path).read_bytes(), Plan)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} does not hold the plan of a further process: {str(error)[:120]}",
            "use --gpuperf-passes, which makes plans",
        ) from None


def measure_again(
    words: Sequence[str], folder: Path, nodes: tuple[str, ...], passes: int
) -> list[Record]:
    """Return the records of *nodes* in processes 1 to *passes* − 1, one after the other.

    *words* are those by which pytest was called in *folder*. Raises: CannotMeasure if a process
    writes no run.
    """
    records: list[Record] = []
    with tempfile.TemporaryDirectory(prefix="gpuperf-") as temporary:
        for index in range(1, passes):
            plan = Plan(nodes, index, str(Path(temporary) / f"{index}.jsonl"))
            records += _measure(plan, words, folder, Path(temporary) / f"{index}.json", passes)
    return records


def _measure(
    plan: Plan, words: Sequence[str], folder: Path, file: Path, passes: int
) -> tuple[Record, ...]:
    file.write_bytes(encode(plan))
    # With `=`: pytest takes another word that is a path for a test, and moves its rootdir there.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--gpuperf-pass={file}"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if not Path(plan.run).exists():
        last = "; ".join((done.stdout + done.stderr).strip().splitlines()[-LAST:])
        raise CannotMeasure(
            f"process {plan.index + 1} of {passes} measured nothing: {json.dumps(last)[:300]}",
            "run the tests with --gpuperf-passes 1",
        )
    return read_run(plan.run).records
