"""Does the matrix product in clusters divide its work, and fit the device?"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from gpuperf.kernels import _matmul_clusters as clusters
from gpuperf.kernels import _matmul_tiles as divided
from gpuperf.kernels._matmul_tiles import Tile
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.errors import CannotMeasure
from gpuperf.model.contract import DeviceFacts
from gpuperf.model.workload import Point
from gpuperf.nvrtc import compile_source

BYTES = st.sampled_from([1, 2])  # of an element
SIZES = st.integers(1, 1250).map(lambda eights: 8 * eights)
PROCESSORS = 132
TIMES = Path(__file__).parents[2] / "docs" / "measured" / "cluster_tiles.txt"
MOST_SHARED = 227 * 1024


@given(m=st.integers(1, 10_000), n=SIZES, k=SIZES, size=BYTES)
def test_the_parts_of_a_tile_are_all_of_k_and_none_is_empty(
    m: int, n: int, k: int, size: int
) -> None:
    for tile in divided.tiles(m, n, k, PROCESSORS, size):
        running = PROCESSORS // tile.cluster
        work = divided.waves(m, n, k, tile, running, size)
        assert (work.splits - 1) * work.chunk < k <= work.splits * work.chunk
        down, across = (n, m) if tile.turned else (m, n)
        assert work.rows * tile.cluster * tile.rows >= down
        assert work.columns * tile.columns >= across
        assert work.whole % running == 0 or work.rest == 0
        assert work.rest < running and work.splits <= running
        assert work.items == work.whole + work.rest * work.splits


@given(m=st.integers(1, 10_000), n=SIZES, k=SIZES, size=BYTES)
def test_the_tiles_that_are_tried_fit_shared_memory(m: int, n: int, k: int, size: int) -> None:
    tried = divided.tiles(m, n, k, PROCESSORS, size)
    assert 1 <= len(tried) <= divided.TRIED
    for tile in tried:
        assert tile.shared <= MOST_SHARED and tile.stages >= 3
        assert tile.columns <= tile.pieces * tile.piece <= 64 * tile.boxes
        width = tile.width(size)
        assert width == tile.columns or width % (64 if size == 2 else 8) == 0


def measured() -> dict[tuple[int, int, int, int], dict[Tile, float]]:
    """The times of tiles on an H200, by m, n, k and the bytes of an element."""
    times: dict[tuple[int, int, int, int], dict[Tile, float]] = {}
    for line in TIMES.read_text().splitlines()[1:]:
        if not line.startswith(" "):
            size, dtype = line.split(":")[0].split()
            m, n, k = map(int, size.split("x"))
            of_one = times.setdefault((m, n, k, 2 if dtype == "bfloat16" else 1), {})
        else:
            *numbers, time = line.split()
            *tile, turned = map(int, numbers)
            of_one[Tile(*tile, turned=bool(turned))] = float(time)
    return times


def test_one_of_the_tiles_that_are_tried_is_about_the_fastest() -> None:
    for size, times in measured().items():
        tried = divided.tiles(*size[:3], PROCESSORS, size[3])
        known = [times[tile] for tile in tried if tile in times]
        assert len(known) >= len(tried) - 1
        assert min(known) < 1.005 * min(times.values()), size


def test_a_run_file_names_the_tile() -> None:
    chosen = clusters.named(Tile(3, 216, 2, 4), 2)
    assert chosen == {"BM": 192, "BN": 216, "BK": 64, "cluster": 2, "splits": 4}
    assert clusters.tile_of(chosen) == Tile(3, 216, 2, 4)
    turned = clusters.named(Tile(3, 216, 2, 4, turned=True), 2)
    assert turned == {"BM": 216, "BN": 192, "BK": 64, "cluster": 2, "splits": 4, "turned": 1}
    assert clusters.tile_of(turned) == Tile(3, 216, 2, 4, turned=True)
    assert clusters.named(Tile(2, 192, 1), 1)["BK"] == 128


def test_tiles_fill_waves_and_share_unaligned_rows() -> None:
    """3072² are 264 tiles of 280 x 128, two waves of 132; rows of 9000 are no multiple of 64."""
    assert divided.tiles(3072, 3072, 3072, PROCESSORS)[0] == Tile(2, 280, 1, turned=True)
    assert divided.tiles(4096, 4096, 4096, PROCESSORS)[0] == Tile(2, 256, 1)
    assert divided.tiles(8192, 8192, 8192, PROCESSORS)[0] == Tile(3, 256, 1, 2)
    *unaligned, last = divided.tiles(1000, 9000, 7000, PROCESSORS)
    assert all(tile.cluster == 2 for tile in unaligned) and last.cluster == 1
    assert Tile(1, 64, 1) in divided.tiles(64, 8192, 8192, PROCESSORS)  # DRAM is the bound
    few = divided.tiles(64, 4096, 4096, PROCESSORS)
    assert all(tile.cluster == 1 or tile.turned for tile in few)
    # 2376 rows are 11 tiles of 216, but 12.4 of 192 or 18.6 of 128.
    assert divided.tiles(2376, 13808, 6744, PROCESSORS)[0].turned
    # In a mirror image nothing is gained where both operands are aligned.
    assert not any(tile.turned for tile in divided.tiles(4096, 4096, 4096, PROCESSORS, size=1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
@pytest.mark.parametrize(
    "tile",
    [
        Tile(2, 280, 2),
        Tile(3, 256, 1),
        Tile(1, 72, 1, 3),
        Tile(2, 280, 1, turned=True),
        Tile(3, 136, 2, 3, turned=True),
    ],
)
def test_the_kernel_compiles(tile: Tile, dtype: torch.dtype) -> None:
    if dtype.itemsize == 1:
        tile = tile._replace(columns=min(tile.columns, divided.MOST_COLUMNS[1][tile.members]))
    pytest.importorskip("cuda.bindings.nvrtc")
    try:
        assert compile_source(clusters.source_of(tile, dtype), clusters.ARCH)
    except CannotMeasure as error:
        if "cannot be loaded" not in str(error):
            raise
        pytest.skip(str(error))


def test_it_runs_on_hopper_with_rows_that_tma_moves() -> None:
    def refused(
        dtype: str = "bf16", n: int = 64, k: int = 64, capability: str = "9.0"
    ) -> str | None:
        device = DeviceFacts("cuda", 0, "GPU", PROCESSORS, 0, 0, capability=capability)
        return clusters.clusters_supports(Point(m=8, n=n, k=k, dtype=dtype), device)

    assert refused() is None
    assert "compute capability 9.0" in str(refused(capability="10.0"))
    assert refused("fp8") is None
    assert "bf16, fp16, fp8 only" in str(refused(dtype="fp32"))
    assert "multiples of 16" in str(refused("fp8", n=72))
    assert "multiples of 8" in str(refused(n=12))
    assert "multiples of 8" in str(refused(k=12))
