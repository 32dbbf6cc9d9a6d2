"""Time calls with nvbench, where its Python package (cuda-bench) is installed.

nvbench runs only once in a process, so it times all calls of a command together.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure.timers.timer import Call

NAME, AXIS = "gpuperf", "call"
MEAN = "nv/cold/time/gpu/mean"


def nvbench_means(calls: Sequence[Call]) -> list[float | None]:
    """Return the mean GPU time of each call in seconds, by nvbench with its defaults (cold cache).

    A call that nvbench did not time has None.
    Raises: CannotMeasure without cuda-bench, or when nvbench fails or has run before.
    """
    try:
        from cuda import bench
    except ImportError:
        raise CannotMeasure("nvbench is not installed", "pip install cuda-bench") from None

    def benchmark(state: Any) -> None:
        call = calls[state.get_int64(AXIS)]

        def launch(launch: Any) -> None:
            stream = torch.cuda.ExternalStream(launch.get_stream().addressof())
            with torch.cuda.stream(stream):
                call()

        state.exec(launch, batched=False)

    with tempfile.TemporaryDirectory() as folder, _silence():
        file = Path(folder) / "nvbench.json"
        device = str(torch.cuda.current_device())
        try:
            bench.register(benchmark).set_name(NAME).add_int64_axis(AXIS, range(len(calls)))
            bench.run_all_benchmarks(["nvbench", "--devices", device, "--json", str(file)])
        except RuntimeError as error:
            raise CannotMeasure(f"nvbench failed: {error}") from None
        return _means(json.loads(file.read_text(encoding="utf-8")), len(calls))


def _means(output: Any, count: int) -> list[float | None]:
    means: list[float | None] = [None] * count
    for benchmark in output.get("benchmarks", ()):
        for state in benchmark.get("states", ()):
            values = {a["name"]: a["value"] for a in state.get("axis_values") or ()}
            for summary in state.get("summaries") or ():
                if summary.get("tag") == MEAN:
                    data = {d["name"]: d["value"] for d in summary["data"]}
                    means[int(values[AXIS])] = float(data["value"])
    return means


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Discard stdout, to which nvbench prints tables."""
    sys.stdout.flush()
    stdout, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(null)
