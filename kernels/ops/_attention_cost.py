"""Compute what attention costs, what each implementation is modelled to move, and how it rounds.

The shapes, FLOPs and bytes are those that attention.py documents.
"""

from __future__ import annotations

from gpuperf.kernels._masks import blind_queries, key_count, needed_pairs, seen_pairs
from gpuperf.kernels._modes import of_mode

from gpuperf import Bytes, Cost, Flops, Point, Work
from gpuperf.units import itemsize


def sizes(point: Point) -> tuple[int, int, int, int]:
    """Bytes of q, of k, of all heads' scores and of the log-sum-exp."""
    size = itemsize(point.dtype)
    rows = point.batch * point.heads * point.seq
    q = rows * point.head_dim * size
    k = point.batch * point.heads // point.gqa * key_count(point) * point.head_dim * size
    return q, k, rows * key_count(point) * size, rows * 4


def matmuls(point: Point, forward: int, backward: int, pairs: int) -> tuple[Flops, ...]:
    """Matmuls over *pairs*, so many in the forward and in the backward."""
    each = 2 * point.batch * point.heads * point.head_dim * pairs
    return (Flops(of_mode(point.mode, forward, backward) * each, "matmul", point.dtype, "fp32"),)


def moved(point: Point, forward: tuple[int, int], backward: tuple[int, int]) -> tuple[Bytes, ...]:
    """(read, written) of the point's mode."""
    read, written = (of_mode(point.mode, *both) for both in zip(forward, backward, strict=True))
    return (Bytes(read, written),)


def cost(point: Point) -> Cost:
    """q, k, v and do read once; o, or dq, dk and dv, written once. Two matmuls, and four."""
    q, k, _, _ = sizes(point)
    moves = Bytes(q + 2 * k + q * (point.mode != "fwd"), of_mode(point.mode, q, q + 2 * k))
    return Cost(matmuls(point, 2, 4, needed_pairs(point)), (moves,))


def eager_work(point: Point) -> Work:
    """Each kernel by itself, the hidden pairs too."""
    q, k, u, _ = sizes(point)
    all_keys = k * point.gqa  # repeated, which itself moves k and v once more
    read, written = (2 * k, 2 * all_keys) if point.gqa > 1 else (0, 0)
    # Over the scores, beside softmax and matmuls: scale, mask, and NaN made 0.
    passes = 1 + (point.causal == "yes") + blind_queries(point)
    tensors, scores = q + 2 * all_keys, (2 + passes) * u
    forward = (tensors + scores + read, q + scores + written)
    backward = (2 * q + tensors + scores + 3 * u + written, tensors + scores + read)
    pairs = point.seq * key_count(point)
    return Work(matmuls(point, 2, 4, pairs), moved(point, forward, backward))


def eager_roundings(point: Point) -> int:
    """Scores before and after the scale, twice each: they reach 6, and a share's error is theirs
    times that; the mask's, the shares; and four gradients."""
    return 6 if point.mode == "fwd" else 10


def compile_roundings(point: Point) -> int:
    """Scores once, which count twice, and the shares; and the same four gradients."""
    return 3 if point.mode == "fwd" else 7


def flash_roundings(point: Point) -> int:
    """The shares are rounded before they meet v, and behind them the output that the gradient
    begins with, and the gradient of the scores. Scores stay in fp32: of that dtype all of eager
    attention's are in between, and the log-sum-exp and δ besides."""
    if point.mode == "fwd":
        return 1
    return eager_roundings(point) + 2 if point.dtype == "fp32" else 3


def flash_work(point: Point) -> Work:
    """The scores once more for dk and dv, and once more for dq: seven matmuls instead of four."""
    q, k, _, lse = sizes(point)
    sums, each = 2 * q, 2 * q + 2 * k + 2 * lse  # reads of o and do; of q, k, v, do, lse and sums
    bytes_ = moved(point, (q + 2 * k, q + lse), (sums + 2 * each, lse + q + 2 * k))
    return Work(matmuls(point, 2, 7, seen_pairs(point)), bytes_)
