"""Is each tile of attention computed once, and do all programs end at about the same time?"""

from __future__ import annotations

from itertools import chain, pairwise
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from gpuperf.kernels import _flash_hopper_ranges as ranges
from gpuperf.kernels._flash import Spans
from gpuperf.kernels._flash_hopper import Plan, plan_of
from gpuperf.kernels._flash_hopper_ranges import first_row, tile_at
from gpuperf.kernels._flash_hopper_schedule import (
    HIDING,
    OUTSET,
    SHORT,
    Work,
    heads_together,
    hiding_of,
    in_order,
    keys_of,
    schedule,
    table_of,
)

PROCESSORS = 132


def spans_of(queries: int, keys: int, window: int = 200) -> Spans:
    """The spans of a causal window. With fewer keys than queries, the first queries see no key."""
    ends = [max(0, i + 1 + keys - queries) for i in range(queries)]
    return Spans(tuple(max(0, end - window) for end in ends), tuple(ends))


WORKS = [
    Work(queries, keys, heads, mask, keys - queries, spans_of(queries, keys) if known else None)
    for queries, keys, heads in ((1, 1, 1), (300, 77, 4), (2048, 2048, 64), (5000, 5000, 16))
    for mask, known in (("all", False), ("causal", False), ("band", False), ("band", True))
]


@pytest.mark.parametrize("work", WORKS, ids=str)
@pytest.mark.parametrize("members", [2, 3])
def test_each_tile_is_computed_once(work: Work, members: int) -> None:
    programs, blocks, tall, _time = schedule(work, members, 128, PROCESSORS)
    tiles = blocks * work.heads
    assert sorted(chain(*programs)) == list(range(tiles))
    assert len(programs) == min(PROCESSORS, tiles)
    table = table_of(work, members, 128, PROCESSORS, torch.device("cpu"))
    assert table.shape == (max(map(len, programs)) + 3, len(programs))
    for number, given in enumerate(programs):
        whole = [tile for tile in given if tile % blocks < tall]
        assert table[: len(given) + 2, number].tolist() == [len(given), len(whole), *given]
        assert given[: len(whole)] == whole  # the last warpgroup stops behind them


@pytest.mark.parametrize("work", WORKS, ids=str)
@pytest.mark.parametrize("members", [2, 3])
def test_the_tiles_of_a_head_have_each_row_once(work: Work, members: int) -> None:
    programs, blocks, tall, _time = schedule(work, members, 128, PROCESSORS)
    plain = first_row.fn if hasattr(first_row, "fn") else first_row
    with patch.object(ranges, "gl", SimpleNamespace(minimum=min)):
        begins = [plain(block, tall, members) for block in range(blocks + 1)]
    heights = [(end - begin) // 64 for begin, end in pairwise(begins)]
    assert begins[0] == 0
    assert begins[-1] >= work.queries
    assert begins[-2] < work.queries
    assert heights == [members] * tall + [members - 1] * (blocks - tall)
    assert all(any(tile % blocks < tall for tile in tiles) for tiles in programs)


def test_few_tiles_without_a_mask_are_divided_more_evenly() -> None:
    """704 tiles of 192 rows are 6 of some programs; 512 of them and 256 of 128 rows end earlier, as
    4 and 2 of a program take the time of 5.6."""
    work = Work(2048, 2048, 64, "all")
    _programs, blocks, tall, time = schedule(work, 3, 128, PROCESSORS)
    assert (tall, blocks) == (8, 12)
    assert time == pytest.approx(4 * 18 + 2 * (SHORT * 16 + OUTSET))
    assert time < 6 * 18
    masked = schedule(work._replace(mask="causal"), 3, 128, PROCESSORS)
    assert masked.tall == masked.blocks == 11


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
    time = schedule(work, 2, 128, PROCESSORS).longest
    blocks = range(-(-tokens // 128))
    mean = heads * sum(keys_of(b, work, 128, 128) + OUTSET for b in blocks) / PROCESSORS
    assert time < 1.1 * mean


def test_a_window_is_divided_by_what_each_block_reads() -> None:
    """The first 2,000 queries see fewer keys than the others."""
    work = Work(8192, 8192, 64, "band", 0, spans_of(8192, 8192, 2000))
    assert [keys_of(block, work, 128, 128) for block in (0, 1, 14, 16, 40)] == [1, 2, 15, 17, 17]
    programs, _blocks, _tall, time = schedule(work, 2, 128, PROCESSORS)
    hiding = [HIDING * hiding_of(block, work, 128, 128) for block in range(64)]
    each = [keys_of(block, work, 128, 128) + hiding[block] + OUTSET for block in range(64)]
    times = [sum(each[tile % 64] for tile in tiles) for tiles in programs]
    assert max(times) == pytest.approx(time)
    assert max(times) < 1.02 * sum(times) / PROCESSORS


def test_blocks_with_hidden_pairs_are_those_that_some_query_does_not_see_whole() -> None:
    starts = (0, 100, 450, 1000)  # of documents
    ends = [next(end for end in starts if end > i) for i in range(1000)]
    begins = [max(start for start in starts if start <= i) for i in range(1000)]
    work = Work(1000, 1000, 4, "band", 0, Spans(tuple(begins), tuple(ends)))
    for block in range(8):
        queries = range(block * 128, min((block + 1) * 128, 1000))
        hidden = 0
        for start in range(begins[queries[0]] // 64 * 64, ends[queries[-1]], 64):
            hidden += any(begins[i] > start or ends[i] < start + 64 for i in queries)
        assert hiding_of(block, work, 128, 64) == hidden
    assert hiding_of(0, work._replace(spans=None), 128, 64) == 0


def test_few_tiles_are_divided_between_as_many_heads_as_are_needed() -> None:
    causal = Work(8192, 8192, 64, "causal")
    assert heads_together(causal, 64, PROCESSORS) == 7
    assert heads_together(causal, 64, PROCESSORS, group=4) == 25
    assert heads_together(causal, 16, PROCESSORS, group=4) == 64
    assert heads_together(causal._replace(mask="all"), 64, PROCESSORS) == 1


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
    """4 x 16 heads of 64 elements: under a causal mask 2,048 queries take 1.12 times as long by
    tiles of 192 rows as by 128, were a row of both as fast; 8,192 take 1.03 times as long."""

    def members(tokens: int, mask: str) -> int:
        chosen: Plan = plan_of(64, Work(tokens, tokens, 64, mask), PROCESSORS)
        return chosen.members

    assert [members(n, "causal") for n in (2048, 4096, 8192, 16384)] == [2, 2, 3, 3]
    assert [members(n, "all") for n in (512, 1024, 2048, 8192)] == [2, 3, 3, 3]
    assert members(8192, "band") == 2
