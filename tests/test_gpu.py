"""What only a GPU can show. Run there: `python -m pytest tests/test_gpu.py`."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

from gpuperf.model.contract import Contract
from gpuperf.model.workload import Case
from gpuperf.runner.launcher import LocalLauncher
from gpuperf.runner.supervisor import Supervisor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.version.hip is not None,
        reason="needs an NVIDIA GPU",
    ),
]

GAP_S = 0.01
SAMPLES = 100


@pytest.fixture(scope="module")
def timer() -> Any:
    from gpuperf.measure.timers.blocked import BlockedTimer

    torch.zeros(1, device="cuda")
    return BlockedTimer(torch.device("cuda", 0))


def matmul(n: int) -> Any:
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: torch.mm(a, b)


def add(n: int) -> Any:
    a, b = (torch.randn(n, device="cuda") for _ in range(2))
    return lambda: torch.add(a, b)


OPERATIONS = {
    "matmul 128": (matmul, 128, 0.05),
    "matmul 512": (matmul, 512, 0.05),
    "add 4 MB": (add, 2**20, 0.05),
    "matmul 2048": (matmul, 2048, 0.03),
    "add 256 MB": (add, 2**26, 0.02),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.filterwarnings("ignore")
def test_blocked_agrees_with_the_kernel_time_of_cupti(timer: Any, name: str) -> None:
    from gpuperf.measure.timers.activity import kernel_durations
    from gpuperf.measure.timers.blocked import OWN_KERNELS

    make, n, allowed = OPERATIONS[name]
    call = make(n)
    call()  # loads the kernel
    torch.cuda.synchronize()
    timer.admit(call)
    blocked = statistics.median(timer.sample(call, GAP_S, True).time_s for _ in range(SAMPLES))
    durations = kernel_durations(
        lambda: [timer.sample(call, GAP_S, True) for _ in range(SAMPLES)], OWN_KERNELS
    )
    assert len(durations) % SAMPLES == 0
    cupti = (
        statistics.median(durations)
        if len(durations) == SAMPLES
        else sum(durations) / SAMPLES  # cuBLAS may clear a workspace first
    )
    print(f"{name}: blocked {blocked * 1e6:.3f} µs, CUPTI {cupti * 1e6:.3f} µs")
    assert blocked == pytest.approx(cupti, rel=allowed)


def test_the_floor_and_the_tick_are_plausible(timer: Any) -> None:
    assert 1e-6 < timer.facts.floor_s < 5e-6
    assert timer.facts.floor_uncertainty_s < 0.3e-6
    assert 1e-9 < timer.facts.tick_s <= 1.1e-6


def test_the_clock_of_a_sample_is_the_clock_of_the_card(timer: Any) -> None:
    clock_hz = timer.sample(add(2**24), GAP_S, True).clock_hz
    assert clock_hz is not None
    assert 0.3e9 < clock_hz < 4e9


def test_a_call_that_waits_for_the_device_cannot_be_blocked(timer: Any) -> None:
    from gpuperf.measure.timers.timer import CannotBlock

    x = torch.randn(1024, device="cuda")
    x.sum().item()
    with pytest.raises(CannotBlock):
        timer.admit(lambda: x.sum().item())


FAULTY = '''
import torch
from gpuperf import Axis, Bytes, Cost, Implementation, Workload
from gpuperf.nvrtc import POINTER, load_kernels

SOURCE = 'extern "C" __global__ void wild(int* p) { p[1ull << 45] = 1; }'


def wild(inputs, point, options):
    x = inputs["x"]
    major, minor = torch.cuda.get_device_capability()
    kernel = load_kernels(SOURCE, f"sm_{major}{minor}", ["wild"])["wild"]

    def call():
        if point.n == 2:
            stream = torch.cuda.current_stream().cuda_stream
            kernel.launch(stream, 1, 1, (x.data_ptr(),), (POINTER,))
        return x.clone()

    return call


FAULTY = Workload(
    name="faulty", summary="", formula="",
    axes=(Axis("n", 1, main=True), Axis("dtype", "fp32", choices=("fp32",))),
    inputs=lambda point, make: {"x": make((1024,), "fp32")},
    reference=lambda inputs, point: inputs["x"].double(),
    cost=lambda point: Cost(bytes=(Bytes(4096, 4096),)),
    implementations=(Implementation("torch", wild),),
)
'''


def test_an_illegal_access_is_one_record_and_the_sweep_goes_on(tmp_path: Path) -> None:
    source = tmp_path / "faulty.py"
    source.write_text(FAULTY)
    contract = Contract(timer="blocked", gap_s=0.0, budget_s=0.05)
    with Supervisor(LocalLauncher(), "cuda:0") as supervisor:
        cases = [
            Case("faulty", "torch", {"n": n, "dtype": "fp32"}, {}, str(source)) for n in (1, 2, 3)
        ]
        records = [supervisor.measure("r", case, contract, 0) for case in cases]
    assert [r.status for r in records] == ["ok", "crashed", "ok"]
    assert "illegal memory access" in records[1].reason


def test_fp32_and_tf32_are_not_confused() -> None:
    contract = Contract(timer="blocked", gap_s=0.0, budget_s=0.2)
    records = {}
    with Supervisor(LocalLauncher(), "cuda:0") as supervisor:
        for dtype in ("tf32", "fp32", "tf32"):
            point = {"m": 2048, "n": 2048, "k": 2048, "dtype": dtype}
            case = Case("matmul", "torch", point)
            records[dtype] = supervisor.measure("r", case, contract, 0)
    tf32, fp32 = records["tf32"], records["fp32"]
    assert tf32.check is not None and fp32.check is not None
    assert tf32.samples is not None and fp32.samples is not None
    assert tf32.check.error > 20 * fp32.check.error
    assert tf32.samples.median_s < fp32.samples.median_s / 2
    assert not any(c.kind == "dtype-path" for c in tf32.caveats)
