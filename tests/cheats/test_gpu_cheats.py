"""Every cheat is refused on a GPU too. Run there: `python -m pytest -m gpu tests/cheats`.

`python tests/cheats/test_gpu_cheats.py` prints a table of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from cheats import PRODUCT, Call, Cheat, Inputs, decoy, empty  # noqa: E402
from dropping import CHEATS  # noqa: E402
from gpuperf.kernels.matmul import MATMUL  # noqa: E402
from gpuperf.kernels.stream import COPY  # noqa: E402
from uncaught import UNCAUGHT  # noqa: E402

from gpuperf.measure.bench import Bench  # noqa: E402
from gpuperf.measure.device import open_device  # noqa: E402
from gpuperf.measure.stopwatch import open_stopwatch  # noqa: E402
from gpuperf.measure.telemetry import Meter  # noqa: E402
from gpuperf.model.contract import Contract, Fingerprint  # noqa: E402
from gpuperf.model.record import Record  # noqa: E402
from gpuperf.model.workload import Case, Implementation, Point  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.version.hip is not None, reason="needs an NVIDIA GPU"
    ),
]

CONTRACT = Contract("blocked", gap_s=0.002, duty=0.2, budget_s=0.5)
LARGE = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}
LONG = {"n": 2**26, "dtype": "fp32"}
FASTEST = 10e12  # bytes/s, more than any memory has
SOURCE = """
extern "C" __global__ void gpuperf_write_lines(const float4* x, float4* y, unsigned long long n) {
    const unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
"""


def side_stream(inputs: Inputs, point: Point, options: Any) -> Call:
    """The product runs on a stream of its own, which nobody waits for."""
    a, b, c, work = inputs["a"], inputs["b"], empty(inputs, point), decoy(inputs)
    other = torch.cuda.Stream()

    def call() -> torch.Tensor:
        work()
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            torch.mm(a, b, out=c)
        return c

    return call


def asks_whether_the_stream_is_blocked(inputs: Inputs, point: Point, options: Any) -> Call:
    """Works only where the stream is idle, as it is in a check."""
    a, b, c, work = inputs["a"], inputs["b"], empty(inputs, point), decoy(inputs)

    def call() -> torch.Tensor:
        idle = torch.cuda.current_stream().query()
        work()
        if idle:
            torch.mm(a, b, out=c)
        return c

    return call


def named_like_ours(inputs: Inputs, point: Point, options: Any) -> Call:
    """The copy is done by a kernel that has the name of one of gpuperf's own."""
    from gpuperf.nvrtc import POINTER, U64, load_kernels

    x, work = inputs["x"], decoy(inputs)
    y = torch.empty_like(x)
    major, minor = torch.cuda.get_device_capability()
    kernel = load_kernels(SOURCE, f"sm_{major}{minor}", ("gpuperf_write_lines",))
    args, types = (x.data_ptr(), y.data_ptr(), point.n // 4), (POINTER, POINTER, U64)

    def call() -> torch.Tensor:
        stream = torch.cuda.current_stream().cuda_stream
        kernel["gpuperf_write_lines"].launch(stream, -(-point.n // 1024), 256, args, types)
        work()
        return y

    return call


ON_GPUS = (
    Cheat(side_stream, MATMUL, LARGE, ""),
    Cheat(asks_whether_the_stream_is_blocked, MATMUL, LARGE, ""),
)


def measured(cheat: Cheat) -> Record:
    """The record of *cheat*, by the real bench on the first GPU."""
    device = open_device("cuda:0")
    mine = (Implementation(cheat.name, cheat.build),)
    workload = replace(cheat.workload, implementations=mine, standard=())
    bench = Bench(device, open_stopwatch("blocked", device.torch), Meter(), Fingerprint())
    case = Case(workload.name, cheat.name, cheat.point)
    return bench.measure(workload, case, CONTRACT, "r", seed=0)


@pytest.mark.parametrize("cheat", [pytest.param(c, id=c.name) for c in (*CHEATS, *ON_GPUS)])
def test_a_cheat_is_refused_on_a_gpu(cheat: Cheat) -> None:
    record = measured(cheat)
    assert record.status != "ok", record.check
    assert record.times == {}


def test_a_kernel_with_a_name_of_ours_is_in_the_time() -> None:
    record = measured(Cheat(named_like_ours, COPY, LONG, ""))
    if record.status == "ok":
        assert record.samples is not None
        assert record.samples.median_s > 2 * 4 * LONG["n"] / FASTEST


@pytest.mark.parametrize("cheat", [pytest.param(c, id=c.name) for c in CHEATS])
def test_the_honest_implementation_is_not_refused_on_a_gpu(cheat: Cheat) -> None:
    name = "eager" if cheat.workload.name in ("attention", "sincos") else "torch"
    device = open_device("cuda:0")
    bench = Bench(device, open_stopwatch("blocked", device.torch), Meter(), Fingerprint())
    case = Case(cheat.workload.name, name, cheat.point)
    record = bench.measure(cheat.workload, case, CONTRACT, "r", seed=0)
    assert (record.status, record.reason) == ("ok", "")


def table() -> Iterator[str]:
    """A line a cheat: its status, its time and why it was refused."""
    more = (Cheat(named_like_ours, COPY, LONG, ""),)
    last = tuple(Cheat(build, MATMUL, PRODUCT, "") for build in reversed(UNCAUGHT))
    for cheat in (*CHEATS, *ON_GPUS, *more, *last):
        record = measured(cheat)
        shown = f"{record.samples.median_s * 1e6:.1f} us" if record.samples else ""
        yield f"{cheat.name:36}{record.status:14}{shown:12}{record.reason[:110]}"


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
