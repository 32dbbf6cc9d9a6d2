"""Are the tilings that only a GPU can show right: converted again, loaded ahead, split, by TMA?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import pytest
import torch
from gpuperf.kernels import _linear_cross_entropy as fused
from gpuperf.kernels import _norms_triton as kernels
from gpuperf.kernels import _rows as rows
from gpuperf.kernels import _softmax_triton as softmax_triton
from gpuperf.kernels import cross_entropy, norms, softmax
from gpuperf.kernels.linear_cross_entropy import LINEAR_CROSS_ENTROPY
from gpuperf.kernels.matmul import has_tma

from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point, Workload

OutOfResources = pytest.importorskip("triton.runtime.errors").OutOfResources

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

ROUNDOFF = 2.0**-8  # of bf16
M = 300  # rows: persistent programs have two or three


def drawn(workload: Workload, point: Point) -> dict[str, Any]:
    return dict(workload.inputs(point, bind_make(torch.device("cuda"), 3)))


def assert_near(
    got: Iterable[torch.Tensor], exact: Iterable[torch.Tensor], times: float = 2
) -> None:
    for ours, theirs in zip(got, exact, strict=True):
        error = (ours.double() - theirs).abs().max() / theirs.abs().max()
        assert error <= times * ROUNDOFF


def special(tilings: Iterable[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """Return the tilings that Triton's interpreter cannot show to be right."""
    return [t for t in tilings if t["again"] or (t["per_sm"] and t["stages"] > 1)]


@pytest.mark.parametrize("n", [1024, 16384, 30000])
@pytest.mark.parametrize("residual", ["off", "on"])
def test_every_forward_of_a_norm_is_right(n: int, residual: str) -> None:
    point = Point({"m": M, "n": n, "mode": "fwd+bwd", "residual": residual, "dtype": "bf16"})
    inputs = drawn(norms.LAYERNORM, point)
    inputs["x"].add_(1.0)
    y, *others = norms.LAYERNORM.reference(inputs, point)
    for tiling in [*special(rows.tilings(n, 2, 1 + (residual == "on"))), *rows.piece_tilings(n)]:
        result = kernels.forward_call(inputs, kernels.empty_result(inputs), tiling)()
        assert_near([result.y], [y])
        if residual == "on":
            assert_near([result.rows], others[:1])


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("n", [40, 1000, 4096, 8192, 16384, 30000])
@pytest.mark.parametrize("workload", [norms.LAYERNORM, norms.RMSNORM], ids=lambda w: w.name)
def test_every_backward_of_a_norm_is_right(workload: Workload, n: int, dtype: str) -> None:
    """Pairs of bf16 are unpacked by assembly, which the interpreter does not run."""
    point = Point({"m": M, "n": n, "mode": "bwd", "residual": "on", "dtype": dtype})
    inputs = drawn(workload, point)
    inputs["x"].add_(20.0)
    exact = workload.reference(inputs, point)
    result = kernels.empty_result(inputs)
    kernels.forward_call(inputs, result, rows.tiling_of(1, 16, 0, 0, 1, 0, 0))()
    ran = 0
    for tiling in kernels.backward_tilings(n, 2):
        with suppress(OutOfResources):  # tuning leaves out what does not fit with a residual
            got = kernels.backward_call(inputs, result, tiling)()
            assert_near(got, exact, 2 if dtype == "bf16" else 1 / 4)
            ran += 1
    assert ran >= 4


@pytest.mark.parametrize("n", [1024, 32768, 50000])
def test_every_softmax_and_its_gradient_are_right(n: int) -> None:
    point = Point({"m": M, "n": n, "mode": "fwd+bwd", "dtype": "bf16"})
    inputs = drawn(softmax.SOFTMAX, point)
    y, dx = softmax.reference(inputs, point)
    for tiling in [*special(rows.tilings(n, 2)), *rows.piece_tilings(n)]:
        got = torch.empty_like(inputs["x"])
        softmax_triton.fused_call(softmax_triton.softmax_fused_kernel, got, [inputs["x"]], tiling)()
        assert_near([got], [y])
    for tiling in [*special(rows.tilings(n, 2, 2)), *rows.piece_tilings(n)]:
        got = torch.empty_like(inputs["x"])
        given = [y.bfloat16(), inputs["dy"]]
        softmax_triton.fused_call(softmax_triton.softmax_backward_kernel, got, given, tiling)()
        assert_near([got], [dx], 3)


@pytest.mark.parametrize("v", [700, 50257, 65536])
def test_every_cross_entropy_of_a_vocabulary_is_right(v: int) -> None:
    point = Point({"m": M, "v": v, "ignored": "third", "mode": "fwd+bwd", "dtype": "bf16"})
    inputs = drawn(cross_entropy.CROSS_ENTROPY, point)
    loss, dx = cross_entropy.reference(inputs, point)
    for tiling in cross_entropy.TILINGS:
        lse = torch.full((M,), torch.nan, device="cuda")
        assert_near([cross_entropy.losses_call(inputs, lse, tiling)()], [loss])
    for tiling in cross_entropy.GRADIENTS:
        assert_near([cross_entropy.gradient_call(inputs, lse, tiling)()], [dx])


def test_masked_and_large_logits_have_the_losses_of_float64() -> None:
    """A compiler may fuse the product of a logit and log₂ e with a difference."""
    point = Point({"m": M, "v": 20001, "ignored": "none", "mode": "fwd", "dtype": "fp32"})
    inputs = drawn(cross_entropy.CROSS_ENTROPY, point)
    inputs["x"].add_(1000.0)  # a rounding of log₂ e times 1,000 for each block would be 4e-4
    inputs["x"][::2, :15000] = -torch.inf  # blocks of nothing else
    inputs["targets"].clamp_(min=15000)
    exact = cross_entropy.reference(inputs, point)
    for tiling in cross_entropy.TILINGS:
        lse = torch.full((M,), torch.nan, device="cuda")
        loss = cross_entropy.losses_call(inputs, lse, tiling)()
        assert (loss.double() - exact).abs().max() < 2e-4


@pytest.mark.parametrize("tile", range(0, len(fused.TMA_TILES), 3))
def test_a_linear_cross_entropy_by_tma_is_right(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_tma(torch.device("cuda")):
        pytest.skip("needs TMA")
    monkeypatch.setattr(fused, "TMA_TILES", fused.TMA_TILES[tile : tile + 1])
    monkeypatch.setattr(fused, "LEAST", 1000)  # several chunks, which are no multiple of a tile
    monkeypatch.setattr(fused, "CHUNK", 1)
    sizes = {"m": M, "v": 2345, "k": 136}
    point = Point({**sizes, "ignored": "third", "mode": "fwd+bwd", "dtype": "bf16"})
    inputs = drawn(LINEAR_CROSS_ENTROPY, point)
    lse = torch.full((M,), torch.nan, device="cuda")
    loss = fused.losses_call(inputs, lse, fused.tiles_for(inputs["x"])[0])()
    assert_near(
        (loss, *fused.gradients_call(inputs, lse)()), LINEAR_CROSS_ENTROPY.reference(inputs, point)
    )
