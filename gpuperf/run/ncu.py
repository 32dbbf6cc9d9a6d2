"""What did each kernel of a call do, as Nsight Compute counts it?

A second source beside the counters in the process: a program of its own runs the call under `ncu`,
which flushes the caches before each kernel and runs them one at a time.
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
    "counted by Nsight Compute, each kernel alone and with a cold cache: what a kernel finds in L2 "
    "of the one before it, and what is written back later, is not seen",
    "--counters auto counts a call's DRAM bytes at full speed",
)


def find_ncu() -> Path:
    """The program `ncu`. Raises: CannotMeasure where there is none."""
    found = shutil.which("ncu")
    if found:
        return Path(found)
    for place in PLACES:
        for path in sorted(Path(place).glob("**/ncu"), reverse=True):
            if path.is_file() and os.access(path, os.X_OK):
                return path
    raise CannotMeasure(
        "Nsight Compute is not here: there is no program `ncu`",
        "install it, or leave --counters out: the counters in the process need no ncu",
    )


class Ncu:
    """The program, and the counters that it has for the device here."""

    def __init__(self, program: Path, deadline_s: float) -> None:
        self._program, self._deadline_s = program, deadline_s
        self._chosen: dict[str, tuple[str, ...]] | None = None

    def count(self, request: Measure, device: str) -> tuple[Counted, ...]:
        """The name and the counters of each kernel of the case's call. Raises: CannotMeasure."""
        chosen = self._choose()
        names = [name for group in chosen.values() for name in group]
        cold = request.contract.regime == "burst" and request.contract.cache != "hot"
        with tempfile.TemporaryDirectory() as folder:
            asked, log = Path(folder) / "request.json", Path(folder) / "ncu.csv"
            asked.write_bytes(msgspec.json.encode(request))
            code, told = self._run(
                "--clock-control",
                "none",
                "--cache-control",
                "all" if cold else "none",
                "--profile-from-start",
                "off",
                "--target-processes",
                "all",
                "--csv",
                "--page",
                "raw",
                "--print-units",
                "base",
                "--metrics",
                ",".join(names),
                "--log-file",
                str(log),
                sys.executable,
                "-P",
                "-m",
                "gpuperf.measure.ncu_target",
                str(asked),
                device,
            )
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        _check(code, f"{text}\n{told}")
        found = read_csv(text, names)
        if not found:
            last = " ".join((text + told).split())[-LOG_TAIL:]
            raise CannotMeasure(f"Nsight Compute saw no kernel: {last or 'it said nothing'}")
        return tuple((name, derive(combine(chosen, names, values))) for name, values in found)

    def _choose(self) -> dict[str, tuple[str, ...]]:
        """The metrics of this chip, asked once."""
        if self._chosen is None:
            code, told = self._run("--query-metrics")
            _check(code, told)
            lines = [line for line in told.splitlines() if line.strip()]
            self._chosen = choose(KERNEL, {line.split()[0] for line in lines})
            if not self._chosen:
                raise CannotMeasure("Nsight Compute has no counters for this device")
        return self._chosen

    def _run(self, *arguments: str) -> tuple[int, str]:
        """How `ncu` ends, and what it prints; it and all that it started end at the deadline."""
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
                    f"Nsight Compute was not done after {self._deadline_s:g} s",
                    "give --deadline more",
                ) from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, out.decode("utf-8", "replace")


def _check(code: int, told: str) -> None:
    """Raises: CannotMeasure where `ncu` or what it ran failed: the kernels so far are not all."""
    if NO_PERMISSION in told:
        raise CannotMeasure(
            "Nsight Compute may not read the counters (ERR_NVGPUCTRPERM)", PERMISSION_HINT
        )
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(ERROR)]
    if not errors and code == 0:
        return
    # The last line that is not ncu's own is the reason, where the program under it failed.
    others = [line for line in lines if not line.startswith(("==", '"'))]
    said = "; ".join(part[-LOG_TAIL:] for part in (*errors[:1], *others[-1:]))
    raise CannotMeasure(f"Nsight Compute failed with exit code {code}: {said or 'it said nothing'}")


def read_csv(text: str, names: Sequence[str]) -> list[tuple[str, list[float]]]:
    """The kernels in the raw page that `ncu --csv` printed: name, and the values of *names*.

    A line of units follows the head; what ncu says besides begins with `==`.
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


def with_ncu(record: Record, found: Iterable[Counted]) -> Record:
    """*record* with what Nsight Compute counted; copies and memsets stay as they were seen."""
    kernels = sum_by_name(found)
    totals = sum_up(kernel.counters for kernel in kernels)
    others = tuple(k for k in record.kernels if not k.computes)
    return replace(
        record,
        kernels=(*kernels, *others),
        counters={name: totals[name] for name in totals.keys() - {"cycles", "time_ns"}},
        caveats=(*record.caveats, DOUBT),
    )
