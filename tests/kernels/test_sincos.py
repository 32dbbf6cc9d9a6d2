"""Are the ways to compute sin²x + cos²x right at their edges, and what do they move?"""

from __future__ import annotations

import pytest
import torch
from gpuperf.kernels.sincos import SINCOS, needs_cuda_and_compiler

from gpuperf import jit
from gpuperf.jit import INTERPRETED, triton
from gpuperf.measure.checks import tolerance
from gpuperf.measure.inputs import bind_make
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.workload import Point

CPU = DeviceFacts("cpu", 0, "CPU", 1, 0, 0)
GPU = DeviceFacts("cuda", 0, "GPU", 132, 0, 0, capability="9.0")
ROCM = DeviceFacts("rocm", 0, "GPU", 304, 0, 0, capability="gfx942")
BY_NAME = {implementation.name: implementation for implementation in SINCOS.implementations}

interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs Triton, and no GPU")


def of(n: int, dtype: str) -> Point:
    return Point({"n": n, "dtype": dtype})


@interpreted
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "fp64"])
@pytest.mark.parametrize("n", [1, 1023, 1024, 1025, 5000])
def test_triton_is_right_for_large_arguments_too(n: int, dtype: str) -> None:
    point = of(n, dtype)
    x = bind_make(torch.device("cpu"), 0)((n,), dtype).mul_(2000).clamp_(-1e4, 1e4)
    y = BY_NAME["triton"].build({"x": x, "b": torch.ones(1, dtype=x.dtype)}, point, {})()
    assert y.dtype == x.dtype
    assert (y.double() - 1).abs().max() <= tolerance(dtype, dtype, SINCOS.terms_of(point))


def test_an_error_of_the_argument_shows_in_the_result() -> None:
    """With b = 1 the result is 1 whatever the argument."""
    inputs = SINCOS.inputs(of(100, "fp32"), bind_make(torch.device("cpu"), 0))
    moved = {**inputs, "x": inputs["x"] + 1e-3}
    right, wrong = (SINCOS.reference(given, of(100, "fp32")) for given in (inputs, moved))
    assert (right - wrong).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("name", "dtype", "device", "reason"),
    [
        ("eager", "bf16", CPU, None),
        ("graph", "bf16", GPU, None),
        ("graph", "fp32", ROCM, "CUDA graphs need an NVIDIA GPU"),
        ("compile-reduce-overhead", "fp32", CPU, "CUDA graphs need an NVIDIA GPU"),
        ("cuda", "fp32", GPU, None),
        ("cuda", "bf16", GPU, "takes fp32 only"),
        ("cuda", "fp32", CPU, "CUDA C needs an NVIDIA GPU"),
    ],
)
def test_what_is_not_taken_is_said(
    name: str, dtype: str, device: DeviceFacts, reason: str | None
) -> None:
    assert BY_NAME[name].supports(of(33, dtype), device) == reason


@pytest.mark.skipif(triton is None, reason="needs Triton")
def test_with_triton_a_gpu_has_all_that_torch_compiles() -> None:
    assert needs_cuda_and_compiler(of(33, "bf16"), GPU) is None
    for name in ("compile", "compile-max-autotune", "triton"):
        assert BY_NAME[name].supports(of(33, "bf16"), GPU) is None


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("eager", 11),
        ("graph", 11),
        ("compile-reduce-overhead", 4),
        ("compile", 2),
        ("compile-max-autotune", 2),
        ("triton", 2),
        ("cuda", 2),
    ],
)
def test_the_passes_of_each_implementation(name: str, passes: int) -> None:
    point = of(1000, "fp32")
    work = BY_NAME[name].work
    assert work is not None
    assert work(point).dram_bytes == passes * 4000 + 4  # and b
    assert work(point).flops == SINCOS.cost(point).flops


@pytest.mark.skipif(
    BY_NAME["compile"].supports(of(1, "fp32"), CPU) is not None, reason="needs a C++ compiler"
)
def test_a_size_too_many_for_torch_fails_and_does_not_run_in_eager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert jit.MOST_COMPILED > 1000
    monkeypatch.setattr(jit, "MOST_COMPILED", 1)
    build = BY_NAME["compile"].build
    put_back = torch._dynamo.config.patch(recompile_limit=8)
    with put_back, pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        for n in range(2, 5):
            build({"x": torch.ones(n), "b": torch.ones(1)}, of(n, "fp32"), {})
    torch._dynamo.reset()
