"""Compute attention with Triton kernels that keep the scores of a block in registers.

The loops follow FlashAttention-2 (arXiv 2307.08691); memory grows with n and not with n².

q is (b, h, n_q, d), k and v are (b, h_k, n_k, d), where h/h_k query heads share a head of keys.
With a causal mask query i attends to the keys j ≤ i + offset. In a band, the keys of each query
follow each other, and their first and last move only forward from one query to the next: sliding
windows and documents are bands. A query without a key gives 0, and infinity as its log-sum-exp,
which is stored in base 2. With a cap, scores are cap · tanh(score / cap). The backward computes the
scores again, once for dk and dv and once for dq, so that no two programs add to one element.

Loads and stores use tensor descriptors: TMA from Hopper on, plain loads before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from gpuperf.kernels._flash_backward import backward_kv_kernel, backward_q_kernel, row_sums_kernel
from gpuperf.kernels._flash_forward import forward_kernel

from gpuperf.jit import triton

Tile = Mapping[str, int]
LOG2_E = 1.4426950408889634

# Tiles to tune among: queries and keys of a block, warps, stages. On an H200 the first was the
# fastest for long sequences of d 64 to 256.
FORWARD = (
    {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 3},
    {"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 3},
    {"BM": 64, "BN": 32, "num_warps": 4, "num_stages": 2},
)
BACKWARD_KV = (
    {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 2},
    {"BM": 64, "BN": 128, "num_warps": 8, "num_stages": 2},
    {"BM": 32, "BN": 64, "num_warps": 8, "num_stages": 1},
)
BACKWARD_Q = (
    {"BM": 128, "BN": 64, "num_warps": 8, "num_stages": 3},
    {"BM": 128, "BN": 128, "num_warps": 8, "num_stages": 2},
    {"BM": 64, "BN": 32, "num_warps": 8, "num_stages": 1},
)
# Of heads of 256 elements, whose sums fill most registers. They have not been timed.
BACKWARD_KV_256 = (
    {"BM": 64, "BN": 64, "num_warps": 8, "num_stages": 2},
    {"BM": 32, "BN": 64, "num_warps": 8, "num_stages": 2},
    {"BM": 32, "BN": 64, "num_warps": 8, "num_stages": 1},
)
BACKWARD_Q_256 = (
    {"BM": 64, "BN": 64, "num_warps": 8, "num_stages": 2},
    {"BM": 64, "BN": 32, "num_warps": 8, "num_stages": 1},
)


def tiles(part: str, q: torch.Tensor) -> tuple[Tile, ...]:
    """Return the tiles to tune among for *part*: `forward`, or `kv` or `q` of the backward.

    fp32 has one small tile: it uses no tensor cores, and large tiles compile for most of a minute.
    """
    every: dict[str, tuple[Tile, ...]] = {"forward": FORWARD, "kv": BACKWARD_KV, "q": BACKWARD_Q}
    if q.shape[-1] == 256:
        every |= {"kv": BACKWARD_KV_256, "q": BACKWARD_Q_256}
    candidates = every[part]
    return candidates[-1:] if q.dtype == torch.float32 else candidates


class Band(NamedTuple):
    """The first key that each query attends to and the one after the last, int32 (n_q,), and the
    first query that attends to each key and the one after the last, int32 (n_k,)."""

    key_begins: torch.Tensor
    key_ends: torch.Tensor
    query_begins: torch.Tensor
    query_ends: torch.Tensor


class Spans(NamedTuple):
    """The key_begins and key_ends of a `Band` on the host, by which programs divide the work.

    `spans_of` returns the same object for equal ranges, so that a lookup need not compare them.
    """

    begins: tuple[int, ...]
    ends: tuple[int, ...]

    def __hash__(self) -> int:
        """Return a hash of a few of the numbers, as there may be many."""
        return hash((len(self.ends), self.begins[:: 1 + len(self.begins) // 8]))


@lru_cache(maxsize=64)
def _spans_of(begins: bytes, ends: bytes) -> Spans:
    return Spans(*(tuple(memoryview(of).cast("q")) for of in (begins, ends)))


def spans_of(key_begins: torch.Tensor, key_ends: torch.Tensor) -> Spans:
    """Return the spans of the ranges that `band_of` takes."""
    return _spans_of(*(of.cpu().long().numpy().tobytes() for of in (key_begins, key_ends)))


class Mask(NamedTuple):
    """The keys that a query attends to, the scale of its scores, which is more than 0, and their
    cap, of which 0 is none.

    A band replaces the causal mask; kernels are faster where they also get its spans.
    """

    causal: bool
    offset: int
    scale: float
    band: Band | None = None
    cap: float = 0.0
    spans: Spans | None = None

    @property
    def kind(self) -> str:
        """`all`, `causal` or `band`."""
        return "band" if self.band else "causal" if self.causal else "all"

    @property
    def slope(self) -> float:
        """What the product of a query and a key is multiplied by before its hyperbolic tangent."""
        return self.scale / self.cap if self.cap else 1.0

    @property
    def factor(self) -> float:
        """What it is multiplied by after that, or without one, for a power of 2."""
        return (self.cap or self.scale) * LOG2_E


def band_of(key_begins: torch.Tensor, key_ends: torch.Tensor, keys: int) -> Band:
    """Return the band in which query i attends to the keys from `key_begins[i]` up to, and without,
    `key_ends[i]`; both rise from query to query, and are from 0 to *keys*."""
    begins, ends = key_begins.int().contiguous(), key_ends.int().contiguous()
    j = torch.arange(keys, dtype=torch.int32, device=begins.device)
    # The queries before the first to see a key end at or before it; those up to the last begin so.
    of_keys = (torch.searchsorted(of, j, right=True).int() for of in (ends, begins))
    return Band(begins, ends, *of_keys)


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, tile: Tile
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o (b, h, n_q, d), and the log-sum-exp in base 2 of the scaled scores (b, h, n_q)."""
    q, k, v = (*_plain(q), *_plain(k, v))
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(q.shape[2], tile["BM"]), q.shape[0] * q.shape[1])
    forward_kernel[grid](
        *(q, k, v, o, lse, *(mask.band or (None, None))[:2]),
        *(mask.factor, mask.slope, mask.offset, *_shape(q, k)),
        **_fixed(q, mask, tile),
    )
    return o, lse


def row_sums(o: torch.Tensor, do: torch.Tensor) -> torch.Tensor:
    """Return δ = Σ over d of o ∘ do (b, h, n_q), which the gradient of softmax subtracts."""
    o, do = _plain(o, do)
    b, h, n, d = o.shape
    sums = torch.empty((b, h, n), dtype=torch.float32, device=o.device)
    row_sums_kernel[(triton.cdiv(n, 64), b * h)](o, do, sums, n, h, *o.stride()[:3], D=d, BM=64)
    return sums


def backward(
    part: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    lse: torch.Tensor,
    sums: torch.Tensor,
    mask: Mask,
    tile: Tile,
) -> tuple[torch.Tensor, ...]:
    """Return (dk, dv) if *part* is `kv`, and (dq,) if it is `q`."""
    (q, do), (k, v) = _plain(q, do), _plain(k, v)
    shape = _shape(q, k)
    scalars = (mask.factor, mask.slope, mask.scale, mask.offset, *shape)
    of_queries, of_keys = (mask.band[:2], mask.band[2:]) if mask.band else [(None, None)] * 2
    fixed = _fixed(q, mask, tile)
    if part == "kv":
        dk, dv = torch.empty_like(k), torch.empty_like(v)
        grid = (triton.cdiv(k.shape[2], tile["BN"]), k.shape[0] * k.shape[1])
        backward_kv_kernel[grid](q, k, v, do, lse, sums, dk, dv, *of_keys, *scalars, **fixed)
        return dk, dv
    dq = torch.empty_like(q)
    grid = (triton.cdiv(q.shape[2], tile["BM"]), q.shape[0] * q.shape[1])
    backward_q_kernel[grid](q, k, v, do, lse, sums, dq, *of_queries, *scalars, **fixed)
    return (dq,)


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Allocate the memory in which Triton stores the descriptors that a kernel makes."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _plain(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return *tensors* of one shape, copied where the kernels cannot take them as they are.

    The kernels take equal strides, (b, h, n, d) or (b, n, h, d) in memory without gaps, as
    `empty_like` makes their results, and addresses that are multiples of 16 bytes.
    """
    triton.set_allocator(_scratch)
    first = tensors[0]
    gaps = not (first.is_contiguous() or first.transpose(1, 2).is_contiguous())
    odd = any(stride * first.element_size() % 16 for stride in first.stride()[:3])
    odd = odd or any(t.stride() != first.stride() or t.data_ptr() % 16 for t in tensors)
    if not (gaps or odd):
        return tensors
    # `contiguous` would not copy a tensor without gaps at an odd address.
    return tuple(t.clone(memory_format=torch.contiguous_format) for t in tensors)


def _shape(q: torch.Tensor, k: torch.Tensor) -> tuple[int, ...]:
    """Return n_q, n_k, query heads, the query heads that share keys, and the strides of both."""
    heads = q.shape[1]
    return (
        q.shape[2], k.shape[2], heads, heads // k.shape[1], *q.stride()[:3], *k.stride()[:3],
    )  # fmt: skip


def _fixed(q: torch.Tensor, mask: Mask, tile: Tile) -> dict[str, object]:
    """Return the constants of a kernel. Products in fp32 must not be rounded to tf32."""
    of_fp32 = q.dtype == torch.float32
    fast = q.is_cuda and not of_fp32
    return {
        "D": q.shape[3],
        "MASK": mask.kind,
        "CAP": "none" if not mask.cap else "fast" if fast else "exact",
        "PRECISION": "ieee" if of_fp32 else "tf32",
        **tile,
    }
