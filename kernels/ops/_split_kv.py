"""Compute decode attention with Triton kernels that split the keys of a sequence among programs.

One token of each sequence gives as many programs as there are heads of keys, too few to load from
all of memory at a time. So each sequence's keys are divided into splits (Flash-Decoding): a program
computes the softmax over the keys of one split for all query heads that share them. The splits are
combined, weighted by their sums of exponentials, by a second kernel or, if the tile says JOINED, by
the last program of each sequence, which saves the start of a kernel but has less parallelism. From
Hopper on the second kernel starts while the first one runs, and waits for its end on the device.
With one split, each program writes the result itself.

q is (batch, heads, queries, d): the queries that share a head of keys are `rows` rows in a row.
Query i attends to the keys j ≤ i + kv − queries. The cache is described in `_cache.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from gpuperf.jit import has_dependent_launch, jit, tl, triton

LOG2_E = 1.4426950408889634
LEAST_ROWS = 16  # rows of a product on tensor cores
PROGRAMS_PER_SM = 2  # of the first kernel, that run at a time
LEAST_KEYS = 128  # of a split: fewer cost more in the second kernel than they gain in the first
MOST_SPLITS = 256
NEARLY_BEST = 0.85  # of the best share of busy SMs, that of FlashAttention's heuristic
AT_ONCE = 32  # rows of splits that the last program of a sequence loads at once
MOST_LOADED = 8192  # elements of splits that a program of the second kernel loads at once
HOST_SMS = 4  # assumed where Triton's interpreter runs on a CPU

# Tiles to tune among: the keys of a block, warps, stages.
_SHAPES = (
    {"BN": 32, "num_warps": 4, "num_stages": 4},
    {"BN": 64, "num_warps": 4, "num_stages": 3},
    {"BN": 128, "num_warps": 4, "num_stages": 2},
    {"BN": 128, "num_warps": 8, "num_stages": 3},
)
TILES = tuple({**shape, "JOINED": joined} for shape in _SHAPES for joined in (0, 1))


@jit
def places(table, b, h, j, there, pages, heads, kv, PAGE: tl.constexpr):
    """Return the rows of the cache that have tokens j of sequence b and head h."""
    if PAGE:
        block = tl.load(table + b.to(tl.int64) * pages + j // PAGE, there, 0).to(tl.int64)
        row = (block * heads + h) * PAGE + j % PAGE
    else:
        row = (b.to(tl.int64) * heads + h) * kv + j
    return row


@jit
def add_keys(acc, total, most, query, key, value, seen, factor, PRECISION: tl.constexpr):
    """Add a block of keys to the sums; update the running maximum and rescale the sums."""
    scores = tl.where(seen, tl.dot(query, key.T, input_precision=PRECISION), float("-inf"))
    risen = tl.maximum(most, tl.max(scores, 1) * factor)
    shift = tl.where(risen == float("-inf"), 0.0, risen)
    share = tl.exp2(scores * factor - shift[:, None])
    shrink = tl.exp2(most - shift)
    total = total * shrink + tl.sum(share, 1)
    acc = tl.dot(share.to(value.dtype), value, acc * shrink[:, None], input_precision=PRECISION)
    return acc, total, risen


@jit
def combined(parts, norms, rows, splits, R: tl.constexpr, D: tl.constexpr, STEP: tl.constexpr):
    """Return (R, D), the rows of one sequence: its splits, STEP at a time, by their weights.

    Other programs wrote the splits, so that loads bypass the L1.
    """
    r, d = tl.arange(0, R), tl.arange(0, D)
    most = tl.full((R,), float("-inf"), tl.float32)
    total, acc = tl.zeros((R,), tl.float32), tl.zeros((R, D), tl.float32)
    for start in range(0, splits, STEP):
        s = start + tl.arange(0, STEP)
        row = s[:, None] * rows + r[None, :]
        there = (s[:, None] < splits) & (r[None, :] < rows)
        norm = tl.load(norms + row, there, float("-inf"), cache_modifier=".cg")
        at = row[:, :, None] * D + d[None, None, :]
        part = tl.load(parts + at, there[:, :, None], 0.0, cache_modifier=".cg")
        risen = tl.maximum(most, tl.max(norm, 0))
        shift = tl.where(risen == float("-inf"), 0.0, risen)
        share, shrink = tl.exp2(norm - shift[None, :]), tl.exp2(most - shift)
        acc = acc * shrink[:, None] + tl.sum(part * share[:, :, None], 0)
        total = total * shrink + tl.sum(share, 0)
        most = risen
    return acc / total[:, None]


@jit
def join(
    parts,
    norms,
    o,
    arrived,
    first,
    rows,
    splits,
    R: tl.constexpr,
    D: tl.constexpr,
    STEP: tl.constexpr,
):
    """Combine the splits of a sequence into o in its last program, and set the count of programs
    that have arrived to 0 for the next call."""
    tl.debug_barrier()  # the stores of all threads come before the count, which releases them
    if tl.atomic_add(arrived, 1) == splits - 1:
        whole = combined(parts + first * D, norms + first, rows, splits, R, D, STEP)
        r, d = tl.arange(0, R)[:, None], tl.arange(0, D)[None, :]
        tl.store(o + r * D + d, whole.to(o.dtype.element_ty), r < rows)
        tl.store(arrived, 0)


@jit
def split_kernel(
    q,
    k,
    v,
    table,
    out,
    norms,
    o,
    arrived,
    factor,
    kv,
    queries,
    rows,
    chunk,
    heads,
    pages,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    ROWS: tl.constexpr,
    BN: tl.constexpr,
    ALONE: tl.constexpr,
    PRECISION: tl.constexpr,
    JOINED: tl.constexpr,
    R: tl.constexpr,
    STEP: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Compute the softmax of rows over `chunk` keys; store it, and its log-sum-exp in base 2.

    If JOINED, the last program of a sequence combines its splits into o.
    """
    if OVERLAP:  # the next kernel may start
        tl.extra.cuda.gdc_launch_dependents()
    bh, split = tl.program_id(0), tl.program_id(1)
    b, h = bh // heads, bh % heads
    r, d = tl.arange(0, ROWS), tl.arange(0, D)
    inside, row = r[:, None] < rows, bh.to(tl.int64) * rows + r
    query = tl.load(q + row[:, None] * D + d[None, :], inside, 0.0)
    last = kv - queries + r % queries  # the last key that a row attends to
    most = tl.full((ROWS,), float("-inf"), tl.float32)
    total, acc = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, D), tl.float32)
    end = tl.minimum(kv, (split + 1) * chunk)
    for start in tl.range(split * chunk, end, BN):
        j = start + tl.arange(0, BN)
        there = j < end
        at = places(table, b, h, j, there, pages, heads, kv, PAGE)[:, None] * D + d[None, :]
        key = tl.load(k + at, there[:, None], 0.0)
        value = tl.load(v + at, there[:, None], 0.0)
        seen = there[None, :] & (j[None, :] <= last[:, None])
        acc, total, most = add_keys(acc, total, most, query, key, value, seen, factor, PRECISION)
    total = tl.where(total == 0.0, 1.0, total)  # of a row that sees none of these keys
    acc = acc / total[:, None]
    parts = tl.num_programs(1)
    row = (bh.to(tl.int64) * parts + split) * rows + r
    tl.store(out + row[:, None] * D + d[None, :], acc.to(out.dtype.element_ty), inside)
    if not ALONE:
        tl.store(norms + row, most + tl.log2(total), r < rows)
    if JOINED and not ALONE:
        first = bh.to(tl.int64) * rows
        join(out, norms, o + first * D, arrived + bh, first * parts, rows, parts, R, D, STEP)


@jit
def combine_kernel(
    parts,
    norms,
    o,
    rows,
    splits,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    STEP: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Add the splits of one row, STEP at a time, each weighted by its sum of exponentials.

    With OVERLAP it starts while the first kernel runs, whose end it waits for.
    """
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, D)
    first = row // rows * splits * rows + row % rows
    every = tl.arange(0, SPLITS)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    most = tl.max(tl.load(norms + first + every * rows, every < splits, float("-inf")), 0)
    total, acc = 0.0, tl.zeros((D,), tl.float32)
    for start in range(0, splits, STEP):
        s = start + tl.arange(0, STEP)
        at = first + s * rows
        share = tl.exp2(tl.load(norms + at, s < splits, float("-inf")) - most)
        part = tl.load(parts + at[:, None] * D + d[None, :], s[:, None] < splits, 0.0)
        acc += tl.sum(part * share[:, None], 0)
        total += tl.sum(share, 0)
    tl.store(o + row * D + d, (acc / total).to(o.dtype.element_ty))


def sm_count(tensor: torch.Tensor) -> int:
    """Return the SMs of the device of *tensor*; `HOST_SMS` for a CPU."""
    if tensor.device.type != "cuda":
        return HOST_SMS
    return int(torch.cuda.get_device_properties(tensor.device).multi_processor_count)


def choose_splits(sequences: int, keys: int, sms: int) -> int:
    """Return the splits of *keys* keys for *sequences* (batch · heads of keys) on *sms* SMs.

    It is the least number that keeps nearly as many SMs busy, on the mean over the waves of
    programs, as the best number does.
    """
    at_a_time = sms * PROGRAMS_PER_SM
    most = max(1, min(MOST_SPLITS, at_a_time, keys // LEAST_KEYS))
    waves = [sequences * splits / at_a_time for splits in range(1, most + 1)]
    busy = [wave / math.ceil(wave) for wave in waves]
    return next(n for n, share in enumerate(busy, 1) if share >= NEARLY_BEST * max(busy))


def decode_split(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor | None,
    kv: int,
    splits: int,
    tile: Mapping[str, int],
) -> Callable[[], torch.Tensor]:
    """Return a call that computes o (batch, heads, queries, d), whose memory it owns.

    *table* (batch, pages) has the pages of each sequence; None means a contiguous cache. A split
    has a whole number of blocks of keys, so that there may be fewer of them than *splits*.
    """
    batch, heads, queries, d = q.shape
    kv_heads, size = k.shape[1], k.shape[2]
    rows, sequences = heads // kv_heads * queries, batch * kv_heads
    group = triton.next_power_of_2(rows)
    chunk = triton.cdiv(triton.cdiv(kv, splits), tile["BN"]) * tile["BN"]
    splits = triton.cdiv(kv, chunk)
    o = torch.empty_like(q)
    parts = q.new_empty((sequences, splits, rows, d), dtype=torch.float32) if splits > 1 else o
    norms = q.new_empty((sequences, splits, rows), dtype=torch.float32)
    arrived = q.new_zeros(sequences, dtype=torch.int32)
    fixed = {
        "D": d,
        "PAGE": 0 if table is None else size,
        "ROWS": max(LEAST_ROWS, group),
        "ALONE": splits == 1,
        "R": group,
        "STEP": max(1, AT_ONCE // group),
        "PRECISION": "ieee" if q.dtype == torch.float32 else "tf32",
        **tile,
    }
    two = splits > 1 and not tile["JOINED"]
    early = two and has_dependent_launch(q.device)
    pages = 1 if table is None else table.shape[1]
    scalars = (LOG2_E * d**-0.5, kv, queries, rows, chunk, kv_heads, pages)
    blocks = q if table is None else table  # any address does where no table is read
    power = triton.next_power_of_2(splits)
    combining = {"D": d, "SPLITS": power, "STEP": min(MOST_LOADED // d, power), "OVERLAP": early}
    if early:
        combining["launch_pdl"] = True

    def call() -> torch.Tensor:
        tensors = q, k, v, blocks, parts, norms, o, arrived
        split_kernel[(sequences, splits)](*tensors, *scalars, **fixed, OVERLAP=early)
        if two:
            combine_kernel[(sequences * rows,)](parts, norms, o, rows, splits, **combining)
        return o

    return call
