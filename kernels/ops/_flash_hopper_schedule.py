"""Decide which program of a persistent kernel computes which tiles of attention, and in what order.

A tile is a block of queries of one head; some read more keys than others. Heads follow each other,
so that their keys and values stay in the L2, each from its heaviest block to its lightest; the last
heads advance together, so that light tiles end the work of all programs. Each tile is of the
program that is free first, as if the GPU gave out the tiles while it computes them.

Without a mask all tiles are equal, and few of them may leave many programs idle at the end: 4 · 16
heads of 2,048 queries are 704 tiles of 192 rows, five for most of 132 programs and six for some.
Where a tile has rows for three warpgroups, some tiles of each head then have 64 rows less. They are
computed last, so that the programs with fewer whole tiles compute them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from gpuperf.kernels._flash import Mask, Spans

LAST = 3  # tiles of each program that belong to the last heads
OUTSET = 2.0  # a tile's own time, in blocks of keys; from heads of 64 and 128 elements on an H200
# What a block takes longer, in blocks of keys, if some of its pairs are of no band: an estimate. On
# an H200 values from 0.2 to 0.8 gave the same times, and 0 up to 4 % longer ones for heads of 64
# elements.
HIDING = 0.35
# The time of a tile of two warpgroups' rows where a whole one has three, as a share of the latter's
# without OUTSET. With it the longest program of 1,024 to 8,192 tokens and the time on an H200 agree
# within 3 %, for nine numbers of such tiles and for none.
SHORT = 0.8
MOST_SHORT = 8  # such tiles of a head that are tried at most
FEW = 32  # tiles of a program that are so many that one more or less does not matter


class Work(NamedTuple):
    """The queries, the keys, the heads of all sequences, and of a `Mask` the kind, the offset, and
    the spans of a band, if they are known."""

    queries: int
    keys: int
    heads: int
    mask: str
    offset: int = 0
    spans: Spans | None = None


def work_of(mask: Mask, x: torch.Tensor, k: torch.Tensor) -> Work:
    """Return the work of programs that each compute tiles of a head of x (b, heads, n, d): of q in
    the forward, and of k in the backward."""
    (b, heads), queries = x.shape[:2], x.shape[2]
    return Work(queries, k.shape[2], b * heads, mask.kind, mask.offset, mask.spans)


def heads_together(work: Work, blocks: int, processors: int, group: int = 1) -> int:
    """Return how many heads, the last ones, advance block by block together: more in the backward,
    where each of their tiles has the queries of *group* heads."""
    if work.mask == "all":
        return 1
    return min(work.heads, -(-LAST * processors * group // blocks))


def in_order(order: Sequence[int], heads: int, together: int) -> Iterator[int]:
    """Yield the tiles: block *b* of head *h* of as many blocks as *order* has is h · blocks + b."""
    blocks, alone = len(order), heads - together
    yield from (h * blocks + block for h in range(alone) for block in order)
    yield from (h * blocks + block for block in order for h in range(alone, heads))


def keys_of(block: int, work: Work, rows: int, keys: int) -> int:
    """Return how many blocks of *keys* keys a block of *rows* queries reads: all where only the GPU
    knows a band."""
    begin, end = 0, work.keys
    if work.mask == "causal":
        end = min(end, (block + 1) * rows + work.offset)
    if work.spans:
        begin = min(work.spans.begins[block * rows], work.keys - 1)
        end = work.spans.ends[min((block + 1) * rows, work.queries) - 1]
    return max(1, -(-end // keys) - begin // keys)


def hiding_of(block: int, work: Work, rows: int, keys: int) -> int:
    """Return how many of the blocks of *keys* keys have pairs that a known band does not show."""
    if not work.spans:
        return 0
    first, last = block * rows, min((block + 1) * rows, work.queries) - 1
    begin, end = -(-work.spans.begins[last] // keys), work.spans.ends[first] // keys
    count: int = keys_of(block, work, rows, keys) - max(0, end - begin)
    return count


class Schedule(NamedTuple):
    """The tiles that each program computes, the tiles of a head, how many of them have rows for all
    warpgroups, and the time of the longest program in blocks of keys of a whole tile."""

    programs: list[list[int]]
    blocks: int
    tall: int
    longest: float


def divide(work: Work, times: Sequence[float], tall: int, processors: int) -> Schedule:
    """Return the schedule of tiles that take *times*, the first *tall* of a head being whole."""
    blocks = len(times)
    tiles: Iterable[int] = (
        h * blocks + block
        for part in (range(tall), range(tall, blocks))
        for h in range(work.heads)
        for block in part
    )
    if work.mask != "all":
        order = sorted(range(blocks), key=times.__getitem__, reverse=True)
        tiles = in_order(order, work.heads, heads_together(work, blocks, processors))
    programs: list[list[int]] = [[] for _ in range(min(processors, blocks * work.heads))]
    free = [(0.0, program) for program in range(len(programs))]
    for tile in tiles:
        time, program = free[0]
        programs[program].append(tile)
        heapq.heapreplace(free, (time + times[tile % blocks], program))
    return Schedule(programs, blocks, tall, max(free)[0])


@lru_cache(maxsize=64)
def schedule(work: Work, members: int, keys: int, processors: int) -> Schedule:
    """Return the schedule of tiles of 64 rows for each of *members* warpgroups and blocks of *keys*
    keys, one program on a processor."""
    rows = 64 * members
    blocks = -(-work.queries // rows)
    times = [
        keys_of(block, work, rows, keys) + HIDING * hiding_of(block, work, rows, keys) + OUTSET
        for block in range(blocks)
    ]
    schedules = [divide(work, times, blocks, processors)]
    if work.mask == "all" and members == 3 and blocks * work.heads < FEW * processors:
        short = SHORT * (times[0] - OUTSET) + OUTSET
        for count in range(1, MOST_SHORT + 1):
            tall = -(-(work.queries - count * (rows - 64)) // rows)
            if tall * work.heads >= processors:  # each program begins with a whole tile
                mixed = [times[0]] * tall + [short] * count
                schedules.append(divide(work, mixed, tall, processors))
    return min(schedules, key=lambda one: one.longest)


# A CUDA graph knows the address of a table and does not keep it, so that many are kept here.
@lru_cache(maxsize=1024)
def table_of(
    work: Work, members: int, keys: int, processors: int, device: torch.device
) -> torch.Tensor:
    """Return the schedule as int32 (tiles + 3, programs): how many tiles a program has, how many of
    them are whole, its tiles, and a row that is read ahead. The first call with its arguments
    copies to *device*, which a CUDA graph cannot capture."""
    programs, blocks, tall, _longest = schedule(work, members, keys, processors)
    most = max(map(len, programs))
    columns = [
        [len(tiles), sum(tile % blocks < tall for tile in tiles), *tiles]
        + [0] * (most + 1 - len(tiles))
        for tiles in programs
    ]
    return torch.tensor(columns, dtype=torch.int32).t().contiguous().to(device)
