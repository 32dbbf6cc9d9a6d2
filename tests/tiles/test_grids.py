"""Is a tile that a name tells borne out by the grid? On every launch that was recorded."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import TESTS

from gpuperf.model.record import Launch
from gpuperf.tiles.grids import Way, capacity, splits, ways
from gpuperf.tiles.names import NamedTile, parse_name, reduces_splits

SMS = 132
# One product a line, on an H200 (132 SMs) with torch 2.11 and CUDA 13.0: each kernel's name, grid,
# cluster, and clusters that fit at once. A quarter of the sizes are whatever they are, a quarter
# multiples of 8, the rest of 64.
DATA = TESTS / "data" / "h200_matmul_launches.jsonl"
RECORDED = [json.loads(line) for line in DATA.read_text().splitlines()]


def launch(grid: list[int], cluster: list[int] | None = None, most: int = 0) -> Launch:
    x, y, z = grid
    a, b, c = cluster or (0, 0, 0)
    return Launch((x, y, z), (128, 1, 1), (a, b, c), most_clusters=most)


def test_every_kernel_of_random_products_is_parsed_and_none_against_its_grid() -> None:
    told: Counter[tuple[str, frozenset[Way]]] = Counter()
    dtypes: Counter[str] = Counter()
    for product in RECORDED:
        names = [name for name, *_ in product["kernels"] if not name.startswith("Mem")]
        unknown = [n for n in names if parse_name(n) is None and not reduces_splits(n)]
        assert unknown == []
        dtypes[product["dtype"]] += 1
        for name, grid, cluster, most in product["kernels"]:
            tile = parse_name(name)
            if tile is None or "execute_split_k" in name:
                continue  # what adds up the parts has a grid of its own
            found = ways(tile, launch(grid, cluster, most), product["m"], product["n"], SMS)
            assert found, (product["m"], product["n"], product["k"], name, grid)
            told[tile.family + ("" if tile.persistent else ", plain"), found] += 1
    assert all(dtypes[dtype] >= 40 for dtype in ("bf16", "fp16", "tf32", "fp8", "int8"))
    named = {family for family, found in told if found == {"named"}}
    turned = {family for family, found in told if found == {"turned"}}
    assert (named, turned) == ({"xmma, plain"}, {"nvjet", "cutlass2, plain", "xmma"})


@pytest.mark.parametrize(
    ("tile", "grid", "m", "n", "expected"),
    [
        # 8 × 11 tiles, eight rows of them side by side, K in three parts; 8191³ is 32 × 64 either
        # way.
        (NamedTile("cutlass2", 256, 128), [64, 2, 3], 1008, 2631, {"turned"}),
        (NamedTile("cutlass2", 256, 128), [512, 4, 3], 8191, 8191, {"named", "turned"}),
        (NamedTile("xmma", 64, 128), [57, 3, 3], 3624, 330, {"named"}),
        (NamedTile("cutlass2", 256, 128), [5, 5, 1], 4096, 4096, set()),
        (NamedTile("cutlass2", 128, 128), [4, 4, 1], 512, 512, {"named", "turned"}),
    ],
)
def test_a_grid_of_a_block_a_tile_tells_the_way(
    tile: NamedTile, grid: list[int], m: int, n: int, expected: set[str]
) -> None:
    assert ways(tile, launch(grid), m, n, SMS) == expected


NVJET = NamedTile("nvjet", 64, 128, cluster=(1, 4), persistent=True)


@pytest.mark.parametrize(
    ("tile", "grid", "most", "m", "n", "expected"),
    [
        (NVJET, [4, 24, 1], 30, 4096, 192, {"turned"}),  # 3 × 32 tiles; the other way 64 × 4
        (NVJET, [4, 30, 1], 30, 8192, 8192, {"named", "turned"}),  # as many as fit
        (NVJET, [4, 29, 1], 30, 8192, 8192, set()),
    ],
)
def test_a_persistent_grid_tells_the_way_until_it_is_full(
    tile: NamedTile, grid: list[int], most: int, m: int, n: int, expected: set[str]
) -> None:
    assert ways(tile, launch(grid, [4, 1, 1], most), m, n, SMS) == expected


def test_a_split_tile_may_have_any_number_of_parts() -> None:
    tile = NamedTile("nvjet", 32, 64, cluster=(2, 4), splits=True, persistent=True)
    # 2 × 9 tiles are filled up to 2 × 12, and their parts up to what fits; one way 18 → 24 blocks.
    assert ways(tile, launch([8, 6, 1], [8, 1, 1], 15), 576, 64, SMS) == {"turned"}


@pytest.mark.parametrize(
    ("found", "cluster", "expected"),
    [
        (None, 1, 132),
        (None, 8, 128),
        (launch([8, 15, 1], [8, 1, 1], 15), 8, 120),
        (launch([8, 15, 1], [8, 1, 1]), 8, 128),
        (launch([9, 9, 1]), 1, 132),
        (launch([2, 66, 1], [2, 1, 1], 132), 2, 132),
        (None, 256, 0),
    ],
)
def test_clusters_may_leave_sms_idle(found: Launch | None, cluster: int, expected: int) -> None:
    assert capacity(found, SMS, cluster) == expected


@given(m=st.integers(1, 9999), n=st.integers(1, 9999), swizzle=st.integers(0, 3))
def test_a_grid_made_of_a_tile_bears_it_out(m: int, n: int, swizzle: int) -> None:
    tiles_m, tiles_n = -(-m // 128), -(-n // 256)
    grid = [tiles_m << swizzle, -(-tiles_n // (1 << swizzle)), 2]
    assert "turned" in ways(NamedTile("cutlass2", 256, 128), launch(grid), m, n, SMS)
    assert splits(launch(grid)) == 2
