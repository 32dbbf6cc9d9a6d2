"""Count what each kernel of a call does by Nsight Compute.

A separate process runs the call under `ncu`, which flushes the caches before each kernel and runs
the kernels one at a time. These counts are independent of the counters that the worker reads.
"""

from __future__ import annotations

import csv
import io
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from gpuperf.errors import CannotMeasure
from gpuperf.model.metrics import (
    BY_NCU,
    KERNEL,
    PERMISSION_HINT,
    choose,
    combine,
    derive,
    sum_by_name,
    sum_up,
)
from gpuperf.model.protocol import Measure
from gpuperf.model.record import Caveat, Record

PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")
NO_PERMISSION = "ERR_NVGPUCTRPERM"
ERROR = "==ERROR=="
LOG_TAIL = 300

Counted = tuple[str, dict[str, float]]

DOUBT = Caveat(
    BY_NCU,
    "Nsight Compute counted each kernel alone with a cold cache: what a kernel would reuse from "
    "L2 counts as read from DRAM, and later write-backs from L2 do not count",
    "--counters auto counts a call's DRAM bytes at full speed",
)


def find_ncu() -> Path:
    """Return the path of the program `ncu`. Raises: CannotMeasure if it is not installed."""
    if program := shutil.which("ncu"):
        return Path(program)
    for place in PLACES:
        for path in sorted(Path(place).glob("**/ncu"), reverse=True):
            if path.is_file() and os.access(path, os.X_OK):
                return path
    raise CannotMeasure(
        "Nsight Compute is not installed: there is no program `ncu`",
        "install it, or leave --counters out: the other counters do not need ncu",
    )


class Ncu:
    """The program `ncu`, and the counters that it has for this device."""

    def __init__(self, program: Path, deadline_s: float) -> None:
        self._program, self._deadline_s = program, deadline_s
        self._metrics: dict[str, tuple[str, ...]] | None = None

    def count(self, request: Measure, device: str) -> tuple[Counted, ...]:
        """Return the name and the counters of each kernel of a call. Raises: CannotMeasure."""
        metrics = self._choose()
        names = [name for group in metrics.values() for name in group]
        cold = request.contract.regime == "burst" and request.contract.cache != "hot"
        with tempfile.TemporaryDirectory() as folder:
            path, log = Path(folder) / "request.json", Path(folder) / "ncu.csv"
            path.write_bytes(msgspec.json.encode(request))
            caches = "all" if cold else "none"
            code, output = self._run(
                *f"--clock-control none --cache-control {caches} --profile-from-start off".split(),
                *["--target-processes", "all", "--csv", "--page", "raw", "--print-units", "base"],
                *("--metrics", ",".join(names), "--log-file", str(log)),
                *(sys.executable, "-P", "-m", "gpuperf.measure.ncu_target", str(path), device),
            )
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        _check(code, f"{text}\n{output}")
        kernels = read_csv(text, names)
        if not kernels:
            last = " ".join((text + output).split())[-LOG_TAIL:]
            raise CannotMeasure(f"Nsight Compute recorded no kernel: {last or 'no output'}")
        return tuple((name, derive(combine(metrics, names, values))) for name, values in kernels)

    def _choose(self) -> dict[str, tuple[str, ...]]:
        """Return the metrics of each quantity that this chip has; `ncu` lists them once."""
        if self._metrics is None:
            code, output = self._run("--query-metrics")
            _check(code, output)
            lines = [line for line in output.splitlines() if line.strip()]
            self._metrics = choose(KERNEL, {line.split()[0] for line in lines})
            if not self._metrics:
                raise CannotMeasure("Nsight Compute has no counters for this device")
        return self._metrics

    def _run(self, *arguments: str) -> tuple[int, str]:
        """Run `ncu`, and kill it and its children at the deadline; return its code and output."""
        try:
            started = subprocess.Popen(
                [str(self._program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise CannotMeasure(f"{self._program} does not start: {error.strerror}") from None
        with started as process:
            try:
                out, _ = process.communicate(timeout=self._deadline_s)
            except subprocess.TimeoutExpired:
                raise CannotMeasure(
                    f"Nsight Compute had not ended after {self._deadline_s:g} s",
                    "choose a longer --deadline",
                ) from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, out.decode("utf-8", "replace")


def _check(code: int, output: str) -> None:
    """Refuse the output of a failed `ncu` or program under it. Raises: CannotMeasure."""
    if NO_PERMISSION in output:
        raise CannotMeasure(
            "Nsight Compute may not read the counters (ERR_NVGPUCTRPERM)", PERMISSION_HINT
        )
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(ERROR)]
    if not errors and code == 0:
        return
    # If the program under ncu failed, its last line is the reason.
    others = [line for line in lines if not line.startswith(("==", '"'))]
    why = "; ".join(part[-LOG_TAIL:] for part in (*errors[:1], *others[-1:]))
    raise CannotMeasure(
        f"Nsight Compute failed with exit code {code}: {why or 'it printed nothing'}"
    )


def read_csv(text: str, names: Sequence[str]) -> list[tuple[str, list[float]]]:
    """Read each kernel's name and values of *names* in the raw page that `ncu --csv` printed.

    A line of units follows the head; messages of ncu begin with `==`.
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("==")]
    rows = csv.DictReader(io.StringIO("\n".join(lines)))
    return [
        (row["Kernel Name"], [_number(row.get(name)) for name in names])
        for row in rows
        if row.get("ID") and row.get("Kernel Name")
    ]


def _number(text: str | None) -> float:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return math.nan
    return value if abs(value) < 2.0**100 else math.nan


def with_ncu(record: Record, counted: Iterable[Counted]) -> Record:
    """Replace the kernels of *record* by those *counted*; its copies and memsets stay."""
    kernels = sum_by_name(counted)
    totals = sum_up(kernel.counters for kernel in kernels)
    others = tuple(k for k in record.kernels if not k.computes)
    return replace(
        record,
        kernels=(*kernels, *others),
        counters={name: totals[name] for name in totals.keys() - {"cycles", "time_ns"}},
        caveats=(*record.caveats, DOUBT),
    )
