"""Describe a cache of keys and values, contiguous or in pages, and draw where its tokens are.

A cache is a tensor (blocks, kv_heads, size, head_dim). Contiguous, each sequence has one block,
whose size is the number of its tokens. Paged, a block is a page of `page` tokens, a sequence of kv
tokens has ⌈kv/page⌉ pages anywhere in the cache, and the last of them may be filled in part.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from gpuperf import Axis, Point

Make = Callable[..., torch.Tensor]

LAYOUT = Axis("layout", "contiguous", "layout of the cache", choices=("contiguous", "paged"))
PAGE = Axis("page", 16, "tokens of a page")
DTYPE = Axis("dtype", "auto", "dtype of all tensors", choices=("fp32", "bf16", "fp16"))

GOLDEN = 0.618  # of the pages is the step between two pages of a sequence, which scatters them


def is_paged(point: Point) -> bool:
    """Return whether the cache of *point* is paged."""
    return bool(point.layout == "paged")


def pages_of(point: Point) -> int:
    """Return the blocks of one sequence: its pages, or 1 for a contiguous cache."""
    return math.ceil(point.kv / point.page) if is_paged(point) else 1


def block_size(point: Point) -> int:
    """Return the tokens for which a block has space."""
    return int(point.page if is_paged(point) else point.kv)


def cache_shape(point: Point, kv_heads: int) -> tuple[int, int, int, int]:
    """Return the shape (blocks, kv_heads, size, head_dim) of the keys, which the values share."""
    return point.batch * pages_of(point), kv_heads, block_size(point), point.head_dim


def draw_table(point: Point, make: Make) -> torch.Tensor:
    """Draw the page table (batch, pages): each page of the cache belongs to one sequence."""
    pages = point.batch * pages_of(point)
    table = make((point.batch, pages_of(point)), "int32", high=pages)
    # Bytes are counted with meta tensors, on which the first operator imports torch's compiler.
    return (
        table if table.is_meta else table.copy_(table.flatten().argsort(stable=True).view_as(table))
    )


def draw_positions(point: Point, make: Make) -> torch.Tensor:
    """Draw the position (batch,) of each sequence's first new token in a contiguous cache."""
    return make((point.batch,), "int32", high=point.kv - point.tokens + 1)


def draw_slots(point: Point, make: Make) -> torch.Tensor:
    """Draw the slots (batch, tokens) of new tokens in a paged cache: page · size + place in it.

    The new tokens of a sequence follow each other, in pages that are scattered over the cache.
    """
    slots = make((point.batch, point.tokens), "int32", high=point.kv - point.tokens + 1)
    if slots.is_meta:
        return slots
    pages = point.batch * pages_of(point)
    step = next(n for n in range(max(1, int(GOLDEN * pages)), pages + 2) if math.gcd(n, pages) == 1)
    token = slots[:, :1].long() + torch.arange(point.tokens, device=slots.device)
    sequence = torch.arange(point.batch, device=slots.device)[:, None]
    page = (sequence * pages_of(point) + token // point.page) * step % pages
    return slots.copy_(page * point.page + token % point.page)


def gathered(cache: torch.Tensor, table: torch.Tensor, kv: int) -> torch.Tensor:
    """Return the pages of *cache* as one tensor (batch, kv_heads, kv, head_dim): one copy."""
    heads = torch.arange(cache.shape[1], device=cache.device)
    pages = cache[table[:, None, :], heads[None, :, None]]  # (batch, kv_heads, pages, size, d)
    return pages.flatten(2, 3)[:, :, :kv]
