"""Are our matmuls right at the edges of their tiles, and do they say what they do not take?"""

from __future__ import annotations

import pytest
import torch
from gpuperf.kernels import _matmul_triton, matmul
from gpuperf.kernels.matmul import KEYS, MATMUL

from gpuperf.errors import Unsupported
from gpuperf.jit import INTERPRETED, triton
from gpuperf.measure.checks import compare
from gpuperf.measure.inputs import bind_make
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.workload import Point

CPU = DeviceFacts("cpu", 0, "CPU", 1, 0, 0)
GPU = DeviceFacts("cuda", 0, "GPU", 132, 0, 0, capability="9.0")
ROCM = DeviceFacts("rocm", 0, "GPU", 304, 0, 0, capability="gfx942")
BY_NAME = {implementation.name: implementation for implementation in MATMUL.implementations}
SHAPES = ((33, 47, 65), (1, 40, 9), (70, 1, 3), (64, 64, 1), (1, 1, 1), (100, 33, 32))
ALIGNED = ((33, 48, 72), (1, 8, 8), (65, 64, 16), (100, 200, 40))

interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs Triton, and no GPU")


def of(m: int, n: int, k: int, dtype: str) -> Point:
    return Point({"m": m, "n": n, "k": k, "dtype": dtype})


def check(point: Point, build: str, **tile: int) -> None:
    """Hold `with_pointers` or `with_tma` with *tile* against the reference."""
    inputs = MATMUL.inputs(point, bind_make(torch.device("cpu"), 0))
    c = torch.full((point.m, point.n), torch.nan, dtype=inputs["a"].dtype)
    output = getattr(_matmul_triton, build)(inputs["a"], inputs["b"], c, point, tile)()
    compare(MATMUL, point, inputs, output, "fp32", lambda count, n: torch.arange(count) % n)


@interpreted
@pytest.mark.parametrize("dtype", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_pointers_reach_every_element_of_any_shape(shape: tuple[int, ...], dtype: str) -> None:
    for block in ((16, 32, 16), (64, 16, 32)):
        values = (*block, 2, 4, 1, 0)
        check(of(*shape, dtype), "with_pointers", **dict(zip(KEYS, values, strict=True)))


@interpreted
@pytest.mark.parametrize("shape", ALIGNED)
def test_descriptors_reach_every_element_of_rows_of_16_bytes(shape: tuple[int, ...]) -> None:
    values = (16, 32, 32, 2, 4, 1, 1)
    check(of(*shape, "fp16"), "with_tma", **dict(zip(KEYS, values, strict=True)))


@interpreted
def test_the_interpreter_gets_one_small_tile() -> None:
    point = of(33, 47, 65, "fp32")
    inputs = MATMUL.inputs(point, bind_make(torch.device("cpu"), 0))
    call = BY_NAME["triton"].build(inputs, point, {})
    assert call.chosen == dict(zip(KEYS, matmul.INTERPRETED_TILES[0], strict=True))


def test_only_a_gpu_with_tma_and_rows_of_16_bytes_is_given_its_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not matmul.has_tma(torch.device("cpu"))
    monkeypatch.setattr(matmul, "INTERPRETED", False)
    for there in (True, False):
        monkeypatch.setattr(matmul, "has_tma", lambda device, there=there: there)
        for dtype, n, k, takes in (
            ("bf16", 64, 64, True),
            ("fp16", 8, 40, True),
            ("bf16", 65, 64, False),
            ("bf16", 64, 63, False),
            ("fp32", 64, 64, False),
            ("tf32", 64, 64, False),
        ):
            point = of(64, n, k, dtype)
            a = MATMUL.inputs(point, bind_make(torch.device("cpu"), 0))["a"]
            assert any(tile["TMA"] for tile in matmul.tiles(a, point)) is (takes and there)


@pytest.mark.skipif(not INTERPRETED, reason="runs interpreted, where no GPU is")
def test_a_pinned_tile_is_the_one_that_runs() -> None:
    point = Point({"m": 70, "n": 130, "k": 65, "dtype": "fp16"})
    inputs = dict(MATMUL.inputs(point, bind_make(torch.device("cpu"), 0)))
    call = matmul.matmul_triton(inputs, point, {"tile": "64x128x64"})
    assert [call.chosen[name] for name in ("BM", "BN", "BK")] == [64, 128, 64]
    compare(MATMUL, point, inputs, call(), "fp32", lambda count, n: torch.arange(count) % n)
    with pytest.raises(Unsupported, match="no tile 1x1x1 for fp16"):
        matmul.matmul_triton(inputs, point, {"tile": "1x1x1"})


def test_a_pinned_tile_is_offered_once_and_known_by_its_name() -> None:
    offered = next(i for i in MATMUL.implementations if i.name == "triton").options["tile"]
    assert offered[0] == ""
    assert len(set(offered)) == len(offered)
    assert {"128x256x64", "128x128x64", "64x64x64"} <= set(offered)


def test_every_tile_is_named_once() -> None:
    for tiles in (matmul.TMA_TILES + matmul.HALF_TILES, matmul.TF32_TILES, matmul.FP32_TILES):
        assert len(set(tiles)) == len(tiles)
        assert all(len(tile) == len(KEYS) and min(tile[:3]) >= 16 for tile in tiles)


@pytest.mark.parametrize(
    ("name", "dtype", "device", "reason"),
    [
        ("naive", "bf16", GPU, None),
        ("tiled", "fp16", GPU, None),
        ("tiled", "tf32", GPU, "takes fp32, bf16, fp16 only"),
        ("naive", "fp32", CPU, "CUDA C needs an NVIDIA GPU"),
        ("naive", "fp32", ROCM, "CUDA C needs an NVIDIA GPU"),
        ("triton", "fp64", GPU, "takes bf16, fp16, fp32, tf32 only"),
        ("triton", "fp8", GPU, "takes bf16, fp16, fp32, tf32 only"),
        ("compile", "int8", GPU, "torch.mm does not take int8"),
        ("torch", "fp8", GPU, "torch._scaled_mm needs multiples of 16 for n and k"),
    ],
)
def test_what_is_not_taken_is_said(
    name: str, dtype: str, device: DeviceFacts, reason: str | None
) -> None:
    assert BY_NAME[name].supports(of(33, 47, 65, dtype), device) == reason


@pytest.mark.skipif(triton is None, reason="needs Triton")
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "tf32"])
def test_triton_takes_what_tensor_cores_take(dtype: str) -> None:
    for device in (GPU, ROCM):
        assert BY_NAME["triton"].supports(of(1, 1, 1, dtype), device) is None


@interpreted
def test_the_interpreter_is_not_asked_for_products_of_bf16() -> None:
    assert BY_NAME["triton"].supports(of(1, 1, 1, "fp16"), CPU) is None
    reason = BY_NAME["triton"].supports(of(1, 1, 1, "bf16"), CPU)
    assert reason == "Triton's interpreter multiplies bf16 as integers"


def test_a_sweep_measures_torch_alone_by_default() -> None:
    described = MATMUL.describe("gpuperf.kernels")
    assert described.standard == ("torch",)
    libraries = ["compile", "torch", "cublaslt_heuristic", "cublaslt"]
    assert list(BY_NAME) == ["naive", "tiled", "triton", "gluon", "cuda", *libraries]
