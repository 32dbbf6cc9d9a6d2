"""Is each tile of attention computed once, and do all programs end at about the same time?"""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from gpuperf.kernels._flash_hopper import Plan, plan_of
from gpuperf.kernels._flash_hopper_ranges import tile_at
from gpuperf.kernels._flash_hopper_schedule import (
    OUTSET,
    Work,
    heads_together,
    in_order,
    keys_of,
    schedule,
    table_of,
)

PROCESSORS = 132
WORKS = [
    Work(queries, keys, heads, mask, keys - queries, documents)
    for queries, keys, heads in ((1, 1, 1), (300, 77, 4), (2048, 2048, 64), (5000, 5000, 16))
    for mask, documents in (("all", False), ("causal", False), ("band", False), ("band", True))
]


@pytest.mark.parametrize("work", WORKS, ids=str)
@pytest.mark.parametrize("rows", [128, 192])
def test_each_tile_is_computed_once(work: Work, rows: int) -> None:
    tiles = -(-work.queries // rows) * work.heads
    programs, _time = schedule(work, rows, 128, PROCESSORS)
    assert sorted(chain(*programs)) == list(range(tiles))
    assert len(programs) == min(PROCESSORS, tiles)
    table = table_of(work, rows, 128, PROCESSORS, torch.device("cpu"))
    assert table.shape == (max(map(len, programs)) + 2, len(programs))
    for number, given in enumerate(programs):
        assert table[: len(given) + 1, number].tolist() == [len(given), *given]


@pytest.mark.parametrize("offset", [0, -100, 300])
def test_blocks_of_keys_are_those_that_a_causal_mask_shows(offset: int) -> None:
    work = Work(1000, 700, 1, "causal", offset)
    for block in range(7):
        last = (block + 1) * 128 - 1
        seen = {j // 64 for j in range(work.keys) if j <= last + offset}
        assert keys_of(block, work, 128, 64) == max(1, len(seen))


@pytest.mark.parametrize("tokens", [2048, 3072, 5000, 8192])
@pytest.mark.parametrize("heads", [16, 32, 64])
def test_under_a_causal_mask_all_programs_end_at_about_the_same_time(
    tokens: int, heads: int
) -> None:
    work = Work(tokens, tokens, heads, "causal")
    _programs, time = schedule(work, 128, 128, PROCESSORS)
    blocks = range(-(-tokens // 128))
    mean = heads * sum(keys_of(b, work, 128, 128) + OUTSET for b in blocks) / PROCESSORS
    assert time < 1.1 * mean


def test_documents_of_all_heads_advance_together() -> None:
    programs, _time = schedule(Work(8192, 8192, 64, "band", 0, True), 128, 128, PROCESSORS)
    for turn in range(min(map(len, programs))):
        assert len({tiles[turn] % 64 for tiles in programs}) <= 4


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_the_backward_computes_its_programs_in_the_same_order(work: Work) -> None:
    blocks = -(-work.keys // 128)
    together = heads_together(work, blocks, PROCESSORS)
    tiles = list(in_order(range(blocks), work.heads, together))
    plain = tile_at.fn if hasattr(tile_at, "fn") else tile_at
    for place, tile in enumerate(tiles):
        block, head = plain(place, len(tiles), blocks, together)
        assert head * blocks + block == tile


def test_the_rows_of_a_tile_are_those_whose_last_wave_is_not_poor() -> None:
    """4 x 16 heads of 64 elements: 2,048 queries are 6 waves of 192 rows, of which one is a third
    full, or 8 of 128; 8,192 are 21 or 32."""

    def members(tokens: int, mask: str) -> int:
        chosen: Plan = plan_of(64, Work(tokens, tokens, 64, mask), PROCESSORS)
        return chosen.members

    assert [members(n, "all") for n in (2048, 8192, 16384)] == [2, 3, 3]
    assert members(8192, "band") == 2
