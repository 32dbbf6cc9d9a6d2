"""Cross-entropy of logits, and of a linear layer: odd rows, large logits, slabs, chunks, memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpuperf.kernels import _linear_cross_entropy as fused
from gpuperf.kernels import cross_entropy as plain
from gpuperf.kernels import linear_cross_entropy as linear

from gpuperf.jit import triton
from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point, Workload

pytestmark = [
    pytest.mark.skipif(triton is None, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="runs interpreted, where no GPU is"),
]

CPU = torch.device("cpu")
PLAIN, LINEAR = plain.CROSS_ENTROPY, linear.LINEAR_CROSS_ENTROPY


def point_of(mode: str = "fwd+bwd", dtype: str = "fp32", **sizes: Any) -> Point:
    return Point({**sizes, "mode": mode, "dtype": dtype})


def drawn(workload: Workload, point: Point) -> dict[str, torch.Tensor]:
    return dict(workload.inputs(point, bind_make(CPU, 2)))


def assert_right(got: Any, exact: Any, rtol: float = 1e-5) -> None:
    for ours, theirs in zip(got, exact, strict=True):
        size = float(theirs.abs().max())
        torch.testing.assert_close(ours.double(), theirs, rtol=rtol, atol=rtol * size)


def by_triton(inputs: dict[str, torch.Tensor], tiling: Any) -> tuple[torch.Tensor, ...]:
    lse = torch.full((len(inputs["x"]),), torch.nan)
    loss = plain.losses_call(inputs, lse, tiling)()
    return loss, plain.gradient_call(inputs, lse, tiling)()


def test_the_loss_of_two_equal_logits_is_the_logarithm_of_2() -> None:
    inputs = {"x": torch.tensor([[5.0, 5.0]]), "targets": torch.tensor([1])}
    inputs["dy"] = torch.tensor([2.0])
    loss, dx = by_triton(inputs, plain.GRADIENTS[0])
    torch.testing.assert_close(loss, torch.tensor([0.693147]))
    torch.testing.assert_close(dx, torch.tensor([[1.0, -1.0]]))


@pytest.mark.parametrize("v", [1, 3, 4, 101, 1024, 1027, 2048, 5003])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
@pytest.mark.parametrize("group", [0, 1, 2])
def test_rows_may_begin_at_any_element(v: int, dtype: str, group: int) -> None:
    """From no whole block of aligned vectors up to several, which programs may share."""
    point = point_of(m=5, v=v, dtype=dtype)
    inputs = drawn(PLAIN, point)
    got = by_triton(inputs, {"VECTORS": 128, "warps": 4, "AHEAD": 3, "GROUP": group})
    assert_right(got, plain.reference(inputs, point), 1e-5 if dtype == "fp32" else 1e-3)


def test_large_logits_do_not_overflow_and_masked_ones_get_nothing() -> None:
    point = point_of(m=3, v=700)
    inputs = drawn(PLAIN, point)
    inputs["x"][0] *= 1e4
    inputs["x"][1, :600] = -torch.inf  # vectors of nothing else
    inputs["targets"][1] = 650
    loss, dx = by_triton(inputs, {"VECTORS": 32, "warps": 1, "AHEAD": 1, "GROUP": 1})
    assert_right((loss, dx), plain.reference(inputs, point), 1e-3)
    assert not dx[1, :600].any()


@pytest.mark.parametrize("workload", [PLAIN, LINEAR], ids=lambda workload: workload.name)
def test_a_third_of_the_targets_can_be_ignored_and_has_no_gradient(workload: Workload) -> None:
    point = point_of(m=40, v=90, k=20, ignored="third")
    inputs = drawn(workload, point)
    ignored = inputs["targets"] == plain.IGNORED
    assert 3 < ignored.sum() < 30
    for implementation in workload.implementations:
        if implementation.name != "compile":
            loss, dx, *_ = implementation.build(inputs, point, {})()
            assert not loss[ignored].any()
            assert not dx[ignored].any()
            assert loss[~ignored].all()


@pytest.mark.parametrize("mode", ["fwd", "bwd", "fwd+bwd"])
def test_slabs_and_chunks_of_the_vocabulary_are_merged(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "SLABS", 4)
    monkeypatch.setattr(fused, "CHUNK", 1)
    monkeypatch.setattr(fused, "LEAST", 100)
    point = point_of(mode, m=37, v=333, k=41, ignored="third")
    inputs = drawn(LINEAR, point)
    for implementation in LINEAR.implementations:
        if implementation.name != "compile":
            call = implementation.build(inputs, point, {})
            for change in (lambda: None, lambda: inputs["x"].neg_()):
                change()
                got, exact = call(), LINEAR.reference(inputs, point)
                pair = (got, exact) if mode != "fwd" else ([got], [exact])
                assert_right(*pair, rtol=3e-5)


def test_the_memory_of_a_backward_is_bounded_for_every_vocabulary() -> None:
    for m, v in ((8192, 50257), (8192, 2**17), (8192, 2**18), (1024, 2**18)):
        chunk = fused.chunk_of(m, v, 2)
        assert m * chunk * 2 <= fused.CHUNK
        assert chunk <= v
    assert fused.chunk_of(2**20, 2**18, 2) == fused.LEAST


def test_flops_and_bytes_of_8192_tokens_and_128_ki_classes() -> None:
    m, v, k = 8192, 2**17, 4096
    point = point_of("fwd", "bf16", m=m, v=v, k=k)
    back = point_of("bwd", "bf16", m=m, v=v, k=k)
    assert LINEAR.cost(point).flop_count == 2 * m * v * k
    assert LINEAR.cost(back).flop_count == 4 * m * v * k
    assert LINEAR.cost(point).dram_bytes == 2 * (m * k + v * k + m) + 8 * m
    work = {i.name: i.work for i in LINEAR.implementations}["triton"]
    assert work is not None
    assert work(back).flop_count == 6 * m * v * k
    assert work(point).dram_bytes == LINEAR.cost(point).dram_bytes
    assert PLAIN.cost(point).dram_bytes == 2 * m * v + 8 * m + 2 * m
    assert PLAIN.cost(back).dram_bytes == 4 * m * v + 8 * m + 2 * m
