"""Layer norm and RMS norm in Triton: forward and backward against float64, and odd rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from gpuperf.kernels import _norm_sums as norm_sums
from gpuperf.kernels import _norms_triton as kernels
from gpuperf.kernels import _rows as rows
from gpuperf.kernels import norms
from tilings import distinct

from gpuperf.errors import CannotMeasure
from gpuperf.jit import triton
from gpuperf.measure.device import open_device
from gpuperf.measure.inputs import bind_make, torch_dtype
from gpuperf.model.workload import Point, Workload

pytestmark = [
    pytest.mark.skipif(triton is None, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="runs interpreted, where no GPU is"),
]

Inputs = Mapping[str, torch.Tensor]
ROUNDOFF = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}

BOTH = [norms.LAYERNORM, norms.RMSNORM]
of_both = pytest.mark.parametrize("workload", BOTH, ids=lambda workload: workload.name)
of_each_dtype = pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])


def point_of(
    m: int, n: int, mode: str = "fwd+bwd", dtype: str = "fp32", residual: str = "off"
) -> Point:
    return Point({"m": m, "n": n, "mode": mode, "residual": residual, "dtype": dtype})


def drawn(workload: Workload, point: Point) -> dict[str, torch.Tensor]:
    """Inputs off centre, so that a forgotten mean shows; of shorter rows too than a run takes."""
    generator = torch.Generator().manual_seed(5)

    def make(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        return (2 * torch.randn(shape, generator=generator) + 1).to(torch_dtype(dtype))

    long = Point(dict(point) | {"n": max(point.n, norms.LEAST_ROW)})
    return {
        name: value[..., : point.n].contiguous()
        for name, value in workload.inputs(long, make).items()
    }


def call_of(name: str, workload: Workload, inputs: Inputs, point: Point) -> Any:
    builds = {i.name: i.build for i in workload.implementations}
    return builds[name](inputs, point, {})


def assert_right(workload: Workload, point: Point, inputs: Inputs, output: Any) -> None:
    """Within some roundings of float64, of the tensor's largest value."""
    want = workload.reference(inputs, point)
    for got, exact in zip(tensors(output), tensors(want), strict=True):
        assert got.shape == exact.shape
        error = (got.double() - exact).abs().max() / exact.abs().max().clamp_min(1e-30)
        assert error <= 2 * ROUNDOFF[point.dtype] + 64 * ROUNDOFF["fp32"]


def tensors(output: Any) -> list[torch.Tensor]:
    return [output] if isinstance(output, torch.Tensor) else list(output)


# `fwd+bwd` launches the kernels of both modes; the modes wrap them alike at every size.
SHAPES = [
    *itertools.product([(5, 7)], ["fwd", "bwd", "fwd+bwd"]),
    *itertools.product([(1, 100), (70, 33), (3, 4097), (2, 8200)], ["fwd+bwd"]),
]


@of_both
@of_each_dtype
@pytest.mark.parametrize(("m", "n", "mode"), [(*shape, mode) for shape, mode in SHAPES])
def test_triton_is_float64_rounded(
    workload: Workload, dtype: str, m: int, n: int, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if n > 4000:  # a program a 16 columns would be hundreds to interpret
        monkeypatch.setattr(norm_sums, "SUMS", {0: (64, 1024, 4)})
    point = point_of(m, n, mode, dtype)
    inputs = drawn(workload, point)
    output = call_of("triton", workload, inputs, point)()
    assert {tensor.dtype for tensor in tensors(output)} == {torch_dtype(dtype)}
    assert_right(workload, point, inputs, output)


@of_both
def test_the_formula_is_that_of_torch_in_float64(workload: Workload) -> None:
    point = point_of(6, 11)
    inputs = {name: value.double() for name, value in drawn(workload, point).items()}
    torchs = call_of("torch", workload, inputs, point)()
    for got, want in zip(torchs, workload.reference(inputs, point), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@of_both
def test_rows_of_one_column(workload: Workload) -> None:
    """layernorm: u is 0, so y is the bias and dx 0; rmsnorm: u is ±1 nearly."""
    point = point_of(9, 1)
    inputs = drawn(workload, point)
    output = call_of("triton", workload, inputs, point)()
    want = workload.reference(inputs, point)
    for got, exact in zip(output, want, strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5)


def test_a_row_of_one_value_is_the_bias_and_its_gradient_finite() -> None:
    point = point_of(3, 50)
    inputs = drawn(norms.LAYERNORM, point)
    inputs["x"][1] = 2.5
    output = call_of("triton", norms.LAYERNORM, inputs, point)()
    assert torch.equal(output[0][1], inputs["bias"])
    assert_right(norms.LAYERNORM, point, inputs, output)


def test_a_row_of_noughts_has_an_rms_norm_of_nought() -> None:
    point = point_of(3, 50)
    inputs = drawn(norms.RMSNORM, point)
    inputs["x"][1] = 0.0
    output = call_of("triton", norms.RMSNORM, inputs, point)()
    assert not output[0][1].any()
    assert_right(norms.RMSNORM, point, inputs, output)


@of_both
@pytest.mark.parametrize("name", ["torch", "triton"])
def test_a_gradient_alone_is_of_the_inputs_as_they_are_now(workload: Workload, name: str) -> None:
    point = point_of(8, 20, "bwd")
    inputs = drawn(workload, point)
    call = call_of(name, workload, inputs, point)
    call()
    inputs["x"].mul_(3.0).add_(1.0)
    assert_right(workload, point, inputs, call())
    inputs["weight"].neg_()
    assert_right(workload, point, inputs, call())
    inputs["dy"].mul_(0.5)
    assert_right(workload, point, inputs, call())


@of_both
@pytest.mark.parametrize(("m", "n"), [(70, 1), (70, 20), (5, 1), (5, 20), (9, 2500), (3, 8192)])
def test_every_tiling_is_right(
    workload: Workload, m: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SPLIT", 512)
    monkeypatch.setattr(kernels, "STREAMED", 1024)
    few_rows = {100: (4, 32, 4), 0: (4, 16, 1)}  # the sums of up to 10 programs take several steps
    monkeypatch.setattr(norm_sums, "SUMS", few_rows)
    point = point_of(m, n)
    inputs = drawn(workload, point)
    result = kernels.empty_result(inputs)
    exact = workload.reference(inputs, point)

    def assert_close(got: tuple[torch.Tensor, ...], exact: tuple[torch.Tensor, ...]) -> None:
        for ours, theirs in zip(got, exact, strict=True):
            torch.testing.assert_close(ours.double(), theirs, rtol=2e-4, atol=2e-4)

    every = [*rows.tilings(n), *rows.tilings(rows.WIDE_ROW), *rows.piece_tilings(n)]
    forward = distinct(m, every)
    backward = distinct(m, kernels.backward_tilings(n))
    backward += distinct(m, [t for t in kernels.backward_tilings(rows.WIDE_ROW) if t["split"]])
    assert forward
    assert backward
    for tiling in forward:
        for tensor in (result.y, result.mean, result.rstd):
            tensor.fill_(torch.nan)
        assert_close((kernels.forward_call(inputs, result, tiling)().y,), exact[:1])
        x = inputs["x"].double()
        centre = x.mean(1) if "bias" in inputs else torch.zeros(m).double()
        spread = (x - centre[:, None]).square().mean(1) + kernels.EPS
        assert_close((result.rstd,), (spread.rsqrt(),))
        if "bias" in inputs:
            assert_close((result.mean,), (centre,))
    for tiling in backward:
        assert_close(kernels.backward_call(inputs, result, tiling)(), exact[1:])


@of_both
def test_a_gradient_of_short_rows_is_refused(workload: Workload) -> None:
    """Of 8192 rows of 4, torch's own is off by five times the tolerance."""
    make = bind_make(torch.device("cpu"), 0)
    for mode in ("bwd", "fwd+bwd"):
        with pytest.raises(CannotMeasure, match="rows of 15 elements may cancel"):
            workload.inputs(point_of(4, 15, mode), make)
        assert workload.inputs(point_of(4, 16, mode), make)
    assert workload.inputs(point_of(4, 1, "fwd"), make)


@of_both
def test_rows_may_lie_apart(workload: Workload) -> None:
    point = point_of(5, 40)
    inputs = drawn(workload, point)
    apart = torch.zeros(5, 49)
    apart[:, :40] = inputs["x"]
    inputs["x"] = apart[:, :40]
    output = call_of("triton", workload, inputs, point)()
    assert all(tensor.is_contiguous() for tensor in output)
    assert_right(workload, point, inputs, output)


@of_both
@pytest.mark.parametrize(
    ("mode", "keys"), [("fwd", {""}), ("bwd", {"backward_"}), ("fwd+bwd", {"", "backward_"})]
)
def test_the_tiling_of_each_timed_kernel_is_recorded(
    workload: Workload, mode: str, keys: set[str]
) -> None:
    point = point_of(4, 10, mode)
    call = call_of("triton", workload, drawn(workload, point), point)
    names = {"": rows.KEYS, "backward_": kernels.BACKWARD_KEYS}
    assert set(call.chosen) == {prefix + name for prefix in keys for name in names[prefix]}


def test_flops_and_bytes_of_8192_rows_of_4096_in_bf16() -> None:
    size, vector = 8192 * 4096, 4096
    known = {
        ("layernorm", "fwd"): (7 * size, 2 * (size + 2 * vector), 2 * size),
        ("layernorm", "bwd"): (13 * size, 2 * (2 * size + vector), 2 * (size + 2 * vector)),
        ("layernorm", "fwd+bwd"): (
            20 * size,
            2 * (2 * size + 2 * vector),
            2 * (2 * size + 2 * vector),
        ),
        ("rmsnorm", "fwd"): (4 * size, 2 * (size + vector), 2 * size),
        ("rmsnorm", "bwd"): (9 * size, 2 * (2 * size + vector), 2 * (size + vector)),
        ("rmsnorm", "fwd+bwd"): (13 * size, 2 * (2 * size + vector), 2 * (2 * size + vector)),
    }
    for workload in BOTH:
        for mode in ("fwd", "bwd", "fwd+bwd"):
            cost = workload.cost(point_of(8192, 4096, mode, "bf16"))
            (moved,) = cost.bytes
            assert (cost.flop_count, moved.read, moved.written) == known[workload.name, mode]


def test_a_backward_of_torch_reads_two_tensors_more_than_ours() -> None:
    size = 64 * 128 * 4
    for mode, of_torch, of_ours in (("fwd", 0, 0), ("bwd", 2, 0), ("fwd+bwd", 3, 1)):
        point = point_of(64, 128, mode)
        work = {i.name: i.work for i in norms.LAYERNORM.implementations}
        least = norms.LAYERNORM.cost(point).dram_bytes
        assert work["torch"](point).dram_bytes - least == of_torch * size
        assert work["triton"](point).dram_bytes - least == of_ours * size


@of_both
@of_each_dtype
@pytest.mark.parametrize("name", ["torch", "triton"])
@pytest.mark.parametrize("mode", ["fwd", "bwd", "fwd+bwd"])
def test_rows_are_added_to_a_residual_stream(
    workload: Workload, dtype: str, name: str, mode: str
) -> None:
    """The sum is a result, and its gradient joins that of x; a backward alone has the sum as x."""
    point = point_of(5, 40, mode, dtype, "on")
    if name == "torch" and norms.torch_supports(point, open_device("cpu").facts):
        pytest.skip("torch sums gradients in the dtype of x on a CPU")
    inputs = drawn(workload, point)
    output = call_of(name, workload, inputs, point)()
    want = workload.reference(inputs, point)
    for got, exact in zip(tensors(output), tensors(want), strict=True):
        error = (got.double() - exact).abs().max() / exact.abs().max()
        assert error <= 4 * ROUNDOFF[dtype] + 64 * ROUNDOFF["fp32"]
    if mode != "bwd":
        total = inputs["x"] + inputs["residual"]  # the interpreter cuts bf16, and does not round it
        torch.testing.assert_close(output[1], total, rtol=2 * ROUNDOFF[dtype], atol=0)


def test_a_fused_residual_saves_a_pass_each_way_and_one_more_of_the_gradient() -> None:
    size = 64 * 128 * 4
    work = {i.name: i.work for i in norms.RMSNORM.implementations}
    for mode, saved in (("fwd", 1), ("bwd", 2)):
        point = point_of(64, 128, mode, residual="on")
        without = point_of(64, 128, mode)
        extra = [
            work["torch"](at).dram_bytes - work["triton"](at).dram_bytes for at in (point, without)
        ]
        assert extra[0] - extra[1] == saved * size
        assert norms.RMSNORM.cost(point).flop_count - norms.RMSNORM.cost(without).flop_count == (
            64 * 128
        )


@pytest.mark.parametrize("residual", ["off", "on"])
def test_rows_that_are_read_in_pieces_are_those_of_float64(residual: str) -> None:
    """A first piece far from the mean, values that are large beside their differences, strides."""
    n = 8192
    point = point_of(4, n, residual=residual)
    inputs = drawn(norms.LAYERNORM, point)
    inputs["x"][0, : n // 2] += 1e4
    inputs["x"][1] = 100 + inputs["x"][1] / 10
    inputs["x"][2] = 2.5
    apart = torch.zeros(4, n + 4)
    apart[:, :n] = inputs["x"]
    inputs["x"] = apart[:, :n]
    y, *totals = norms.LAYERNORM.reference(inputs, point)
    tilings = distinct(4, rows.piece_tilings(n))
    assert {tiling["pieces"] for tiling in tilings} == {1, 2}
    for tiling in tilings:
        result = kernels.forward_call(inputs, kernels.empty_result(inputs), tiling)()
        torch.testing.assert_close(result.y.double(), y, rtol=1e-3, atol=1e-3)
        if residual == "on":
            torch.testing.assert_close(result.rows.double(), totals[0], rtol=1e-6, atol=1e-6)


def test_only_rows_that_pieces_divide_are_read_in_pieces() -> None:
    assert {tiling["pieces"] for tiling in rows.piece_tilings(12288)} == {3}
    for n in (2048, 5000, 65536):
        assert not [*rows.piece_tilings(n)]


def test_a_table_of_a_hopper_gpu_replaces_tuning_there_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, every = torch.zeros(4, 1000, dtype=torch.bfloat16), [*rows.tilings(1000, 2)]
    (known,) = rows.CHOSEN["softmax", 1024, 2]
    assert rows.candidates_for("softmax", x, every) == every
    monkeypatch.setattr(rows, "has_tma", lambda device: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (10, 0))
    assert rows.candidates_for("softmax", x, every) == every
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert rows.candidates_for("softmax", x, every) == [dict(zip(rows.KEYS, known, strict=True))]
    assert rows.candidates_for("another", x, every) == every
    for n, tuned in ((4096, False), (4000, True), (12288, True), (16384, False)):
        x, every = torch.zeros(4, n, dtype=torch.bfloat16), [*rows.tilings(n, 2)]
        assert (rows.candidates_for("norm", x, every) == every) == tuned
    for (kernel, _, _), tilings in rows.CHOSEN.items():
        of_norm = kernel.endswith("backward") and "norm" in kernel
        keys = kernels.BACKWARD_KEYS if of_norm else rows.KEYS
        assert {len(chosen) for chosen in tilings} == {len(keys)}
