"""Softmax in Triton, each of our three: where rows are odd, long, large, or nothing but −inf."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from gpuperf.kernels import _rows as rows
from gpuperf.kernels import _softmax_triton as kernels
from gpuperf.kernels import softmax
from tilings import distinct

from gpuperf.jit import triton
from gpuperf.measure.checks import Comparison
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.device import open_device
from gpuperf.model.record import Check
from gpuperf.model.workload import Point

pytestmark = [
    pytest.mark.skipif(triton is None, reason="needs Triton"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="runs interpreted, where no GPU is"),
]

BUILDS = {
    implementation.name: implementation.build for implementation in softmax.SOFTMAX.implementations
}
of_ours = pytest.mark.parametrize("name", ["safe", "online", "fused"])


def softmax_by(name: str, x: torch.Tensor) -> torch.Tensor:
    point = Point({"m": x.shape[0], "n": x.shape[1], "dtype": "fp32"})
    return BUILDS[name]({"x": x}, point, {})()


def normal(m: int, n: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(m, n, generator=torch.Generator().manual_seed(3)) * scale


def assert_right(y: torch.Tensor, x: torch.Tensor) -> None:
    torch.testing.assert_close(
        y.double(), torch.softmax(x.double(), 1), rtol=2e-6, atol=1e-9, equal_nan=True
    )


@of_ours
def test_the_softmax_of_2_1_5_is_the_one_that_is_known(name: str) -> None:
    y = softmax_by(name, torch.tensor([[2.0, 1.0, 5.0]]))
    torch.testing.assert_close(y, torch.tensor([[0.0466, 0.0171, 0.9362]]), rtol=0, atol=5e-5)


@of_ours
@pytest.mark.parametrize(("m", "n"), [(5, 1), (1, 7), (3, 100), (2, 4097), (2, 8192), (9, 3)])
def test_a_row_need_not_be_a_multiple_of_anything(name: str, m: int, n: int) -> None:
    x = normal(m, n)
    assert_right(softmax_by(name, x), x)


@pytest.mark.parametrize("data", ["randn", "ints"])
@pytest.mark.parametrize("rounds", [False, True])
def test_the_error_of_a_gradient_is_relative_to_addends_that_cancel(
    rounds: bool, data: str
) -> None:
    """All gradients read y, which is rounded; that of torch on a GPU rounds y·dy too."""
    made, shape = torch.Generator().manual_seed(0), (2, 131072, 16)
    values = torch.randn(shape, generator=made)
    if data == "ints":
        values = torch.randint(-8, 9, shape, generator=made)
    x, dy = values.bfloat16()
    y = torch.softmax(x, 1)
    product = (y * dy if rounds else y.float() * dy.float()).float()
    point = Point({"m": len(x), "n": 16, "mode": "bwd", "dtype": "bf16"})
    torch_alone = next(each for each in softmax.SOFTMAX.implementations if each.name == "torch")
    compared = Comparison(softmax.SOFTMAX, point, "fp32", torch_alone, harsh=False)

    def check(terms: torch.Tensor) -> Check:
        dx = product - y.float() * terms.sum(1, keepdim=True)
        return compared.whole({"x": x, "dy": dy}, [dx.bfloat16()])

    assert check(product).tolerance < 0.016
    with pytest.raises(WrongResult):
        check(product[:, :-1])


@of_ours
def test_large_logits_do_not_overflow(name: str) -> None:
    x = normal(4, 4100, 1e4)
    x[0, 7], x[1, 4099] = 1e4, -1e4
    assert_right(softmax_by(name, x), x)


@of_ours
def test_what_is_masked_with_minus_infinity_gets_nothing(name: str) -> None:
    x = normal(2, 5000)
    x[0, :4500] = -torch.inf  # a first block of nothing else
    x[1, 4500:] = -torch.inf
    y = softmax_by(name, x)
    assert_right(y, x)
    assert not y[0, :4500].any()


@of_ours
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # numpy's, of the interpreter
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_a_row_of_nothing_but_minus_infinity_is_nan_as_in_torch(name: str) -> None:
    x = normal(4, 33)
    x[1] = -torch.inf
    y = softmax_by(name, x)
    assert y[1].isnan().all()
    assert_right(y, x)


@of_ours
@pytest.mark.parametrize("n", [40, 5000])
def test_rows_may_lie_apart(name: str, n: int) -> None:
    x = normal(3, n + 9)[:, :n]
    assert x.stride(0) > n
    y = softmax_by(name, x)
    assert y.is_contiguous()
    assert_right(y, x)


@pytest.mark.parametrize(("m", "n"), [(70, 1), (70, 47), (5, 1), (5, 47), (9, 2500), (3, 8192)])
def test_every_tiling_of_the_fused_kernel_is_right(m: int, n: int) -> None:
    x = normal(m, n)
    tilings = distinct(m, [*rows.tilings(n), *rows.tilings(rows.WIDE_ROW)])
    assert tilings
    dy = normal(m, n + 1)[:, :n]
    exact = torch.softmax(x.double(), 1)
    slopes = exact * (dy.double() - (exact * dy.double()).sum(1, keepdim=True))
    kernel = kernels.softmax_backward_kernel
    for tiling in [*tilings, *distinct(m, rows.piece_tilings(n))]:
        y, dx = torch.full_like(x, torch.nan), torch.full_like(x, torch.nan)
        assert_right(kernels.fused_call(kernels.softmax_fused_kernel, y, [x], tiling)(), x)
        got = kernels.fused_call(kernel, dx, [exact.float(), dy], tiling)()
        torch.testing.assert_close(got.double(), slopes, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["eager", "torch", "fused"])
def test_a_gradient_alone_is_of_the_input_as_it_is_now(name: str) -> None:
    point = Point({"m": 3, "n": 40, "mode": "bwd", "dtype": "fp32"})
    inputs = {"x": normal(3, 40), "dy": normal(3, 40, 2.0)}
    call = BUILDS[name](inputs, point, {})
    for change in (lambda: None, lambda: inputs["x"].mul_(3.0), lambda: inputs["dy"].neg_()):
        change()
        got = call()
        got = got if isinstance(got, torch.Tensor) else got[0]
        torch.testing.assert_close(
            got.double(), softmax.reference(inputs, point), rtol=1e-5, atol=1e-6
        )


def test_a_gradient_reads_and_writes_three_tensors_and_has_no_exponential() -> None:
    point = Point({"m": 8, "n": 100, "mode": "bwd", "dtype": "bf16"})
    assert softmax.cost(point).dram_bytes == 3 * 8 * 100 * 2
    assert {f.kind for f in softmax.cost(point).flops} == {"elementwise"}
    assert softmax.streams(point, open_device("cpu").facts) == "has no gradient"


def test_tilings_are_distinct_and_fit_an_sm() -> None:
    for n in (1, 128, 1000, 4096, 16384, 65536):
        tilings = [*rows.tilings(n), *rows.tilings(n, 2, 2)]
        assert len({tuple(tiling.items()) for tiling in rows.tilings(n)}) <= 16
        assert all(
            32 * tiling["warps"] * tiling["registers"] <= rows.REGISTERS for tiling in tilings
        )
        assert all(tiling["warps"] <= rows.MOST_WARPS for tiling in tilings)


def test_a_bound_on_registers_reaches_the_compiler() -> None:
    bounds = {t["registers"]: rows.launch_of(t, 16384).get("maxnreg") for t in rows.tilings(16384)}
    assert bounds == {0: None, 80: 80, 128: 128}


def test_programs_are_as_many_as_tiles_or_fewer() -> None:
    x = normal(70, 4)
    one_tile_each = {"rows": 16, "warps": 1, "per_sm": 0}
    assert rows.programs(one_tile_each, x) == 5
    assert rows.programs({**one_tile_each, "per_sm": 2}, x) == 2
    assert rows.programs({**one_tile_each, "per_sm": 9}, x) == 5


def test_a_row_that_no_program_can_hold_is_refused() -> None:
    cpu = open_device("cpu").facts
    supports: Callable[..., str | None] = rows.holds_rows
    assert supports(Point({"n": 65536}), cpu) is None
    assert "65536" in (supports(Point({"n": 65537}), cpu) or "")


def test_eager_moves_8_tensors_safe_4_online_3_the_others_2() -> None:
    point = Point({"m": 3, "n": 1000, "dtype": "fp16"})
    moved = {
        implementation.name: implementation.work(point).dram_bytes // (3 * 1000 * 2)
        for implementation in softmax.SOFTMAX.implementations
        if implementation.work
    }
    assert moved == {"eager": 8, "safe": 4, "online": 3, "fused": 2, "cuda": 2}


def test_a_softmax_is_four_operations_and_an_exponential_an_element() -> None:
    flops = softmax.cost(Point({"m": 8192, "n": 4096, "dtype": "bf16"})).flops
    assert [(f.count, f.kind) for f in flops] == [
        (134_217_728, "elementwise"),
        (33_554_432, "special"),
    ]
