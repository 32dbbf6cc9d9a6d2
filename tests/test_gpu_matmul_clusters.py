"""Is the matrix product in clusters right on a Hopper GPU, with every kind of tile?"""

from __future__ import annotations

import pytest
import torch
from gpuperf.kernels import _matmul_clusters as clusters
from gpuperf.kernels._matmul_tiles import Tile

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="needs a Hopper GPU",
    ),
]
# Fewer rows than a box, tiles larger than C, rows that TMA moves unaligned, k that no block
# divides, several waves, and tiles that end before TMA has stored the ones before.
SIZES = [
    (1, 8, 72),
    (16, 264, 1032),
    (64, 8, 72),
    (130, 264, 2048),
    (600, 520, 1032),
    (3000, 1992, 1544),
    (3000, 8200, 8),
]
TILES = [
    Tile(members, columns, cluster, turned=turned)
    for members, widths in ((1, (64, 256)), (2, (128, 168, 256, 280, 320)), (3, (192, 216, 256)))
    for columns in widths
    for cluster in (1, 2)
    for turned in (False, True)
]
FP8_SIZES = [
    (1, 16, 80),
    (16, 272, 1040),
    (64, 16, 80),
    (130, 272, 2048),
    (600, 528, 1040),
    (3000, 2000, 1552),
    (3000, 8208, 16),
]
FP8_TILES = [
    Tile(members, columns, cluster, turned=turned)
    for members, widths in ((1, (64, 192)), (2, (72, 128, 168, 192)), (3, (72, 128)))
    for columns in widths
    for cluster in (1, 2)
    for turned in (False, True)
]


def drawn(size: tuple[int, int, int], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    m, n, k = size
    generator = torch.Generator("cuda").manual_seed(m + n + k)
    a = torch.randn((m, k), generator=generator, device="cuda").to(dtype)
    return a, torch.randn((k, n), generator=generator, device="cuda").to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", SIZES)
def test_every_tile_is_as_right_as_torch(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    a, b = drawn(size, dtype)
    must_be_as_right_as(a @ b, a, b, TILES)


@pytest.mark.parametrize("size", FP8_SIZES)
def test_every_tile_of_fp8_is_as_right_as_torch(size: tuple[int, int, int]) -> None:
    a, b = drawn(size, torch.float8_e4m3fn)
    b = b.t().contiguous().t()
    one = torch.ones((), device="cuda")
    library = torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
    must_be_as_right_as(library, a, b, FP8_TILES)


def must_be_as_right_as(
    library: torch.Tensor, a: torch.Tensor, b: torch.Tensor, tiles: list[Tile]
) -> None:
    exact = a.double() @ b.double()
    allowed = 1.01 * (library.double() - exact).abs().max()
    for tile in tiles:
        for splits in (1, 3, 5):  # with 5, programs have an inner part, then a last one
            call = clusters.multiply_by(a, b, tile._replace(splits=splits))
            for _ in range(2):  # the second call finds what the first one left
                call().fill_(torch.nan)
                assert (call().double() - exact).abs().max() <= allowed, (tile, splits)


def test_parts_of_k_are_added_in_one_order() -> None:
    a, b = drawn((520, 1000, 8192), torch.bfloat16)
    call = clusters.multiply_by(a, b, Tile(2, 128, 2, 8))
    first = call().clone()
    exact = a.double() @ b.double()
    allowed = 1.01 * ((a @ b).double() - exact).abs().max()
    assert (first.double() - exact).abs().max() <= allowed
    assert all(torch.equal(first, call()) for _ in range(50))


def test_it_runs_in_a_graph() -> None:
    a, b = drawn((520, 1000, 4096), torch.bfloat16)
    call = clusters.multiply_by(a, b, Tile(2, 128, 1, 4))
    expected = call().clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    for _ in range(3):
        result.fill_(torch.nan)
        graph.replay()
        assert torch.equal(result, expected)
