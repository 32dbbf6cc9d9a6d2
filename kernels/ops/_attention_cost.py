"""Compute the cost of attention, and the work and the roundings of its implementations.

attention.py documents the shapes, the FLOPs and the bytes.
"""

from __future__ import annotations

from gpuperf.kernels._masks import (
    cap_of,
    counted_pairs,
    dropout_of,
    has_blind_queries,
    has_hidden_places,
    key_count,
    mask_bytes,
    mask_of,
    seen_keys,
    unmasked_pairs,
)
from gpuperf.kernels._modes import of_mode

from gpuperf import Bytes, Cost, Flops, Point, Work
from gpuperf.units import itemsize


def sizes(point: Point) -> tuple[int, int, int, int]:
    """Return the bytes of q, of k, of the scores of all heads, and of the log-sum-exp."""
    size = itemsize(point.dtype)
    rows = point.batch * point.heads * point.seq
    q = rows * point.head_dim * size
    k = point.batch * point.heads // point.gqa * key_count(point) * point.head_dim * size
    return q, k, rows * key_count(point) * size, rows * 4


def seen_bytes(point: Point) -> int:
    """Return the bytes of the keys that some query sees."""
    _, k, _, _ = sizes(point)
    return k // int(key_count(point)) * int(seen_keys(point))


def matmuls(point: Point, forward: int, backward: int, pairs: int) -> tuple[Flops, ...]:
    """Return the FLOPs of *forward* and *backward* matmuls over *pairs* in the point's mode."""
    each = 2 * point.batch * point.heads * point.head_dim * pairs
    return (Flops(of_mode(point.mode, forward, backward) * each, "matmul", point.dtype, "fp32"),)


def moved(point: Point, forward: tuple[int, int], backward: tuple[int, int]) -> tuple[Bytes, ...]:
    """Return the bytes of the point's mode, given (read, written) of forward and of backward."""
    read, written = (of_mode(point.mode, *both) for both in zip(forward, backward, strict=True))
    return (Bytes(read, written),)


def cost(point: Point) -> Cost:
    """Return the least FLOPs and bytes: two matmuls forward, four backward.

    The forward reads q, k, v and the mask, and writes o; the backward also reads do, and writes dq,
    dk and dv. Dropout needs no bytes: the backward can draw the same random numbers again.
    """
    q, k, _, _ = sizes(point)
    read = q + 2 * seen_bytes(point) + mask_bytes(point) + q * (point.mode != "fwd")
    moves = Bytes(read, of_mode(point.mode, q, q + 2 * k))
    return Cost(matmuls(point, 2, 4, counted_pairs(point)), (moves,))


def eager_work(point: Point) -> Work:
    """Return the work of one kernel for each operation, which computes masked pairs as well.

    Each kernel over the scores moves 2u. That of an additive mask has none backward. Dropout keeps
    a byte a score, which the forward writes and the backward reads. A cap is two kernels, of which
    the backward of the hyperbolic tangent also reads its result.
    """
    q, k, u, _ = sizes(point)
    all_keys = k * point.gqa  # keys are repeated, which itself moves k and v once more
    read, written = (2 * k, 2 * all_keys) if point.gqa > 1 else (0, 0)
    # Kernels over the scores beside softmax and matmuls: the scale, the mask, and NaN set to 0.
    drops, boolean = dropout_of(point) > 0, mask_of(point) == "boolean"
    capped = cap_of(point) > 0
    passes = 1 + has_hidden_places(point) + has_blind_queries(point) + boolean + drops + 2 * capped
    tensors, scores = q + 2 * all_keys, (2 + passes) * u
    added = u * (mask_of(point) == "additive")
    pairs = point.seq * key_count(point)
    kept = drops * point.batch * point.heads * pairs
    forward = (
        tensors + scores + added + mask_bytes(point) + read,
        q + scores + added + kept + written,
    )
    masks = kept + boolean * mask_bytes(point)
    backward_scores = scores + (3 + capped) * u
    backward = (2 * q + tensors + backward_scores + masks + written, tensors + scores + read)
    return Work(matmuls(point, 2, 4, pairs), moved(point, forward, backward))


def eager_roundings(point: Point) -> int:
    """Return how many results eager attention rounds to the tensors' dtype.

    Forward these are the scores before and after the scale, the masked scores and their softmax.
    The scores count twice each: they reach 6, which multiplies the error of the softmax. The
    backward adds four gradients. An additive mask makes scores that are rounded again, and dropout
    rounds the softmax again, and its gradient.
    """
    added, drops = 2 * int(mask_of(point) == "additive"), int(dropout_of(point) > 0)
    capped = 2 * int(cap_of(point) > 0)  # two more results, which count twice each as scores
    if point.mode == "fwd":
        return 6 + added + 2 * capped + drops
    return 10 + added + 3 * capped + 2 * drops


def compile_roundings(point: Point) -> int:
    """Return how many results compiled attention rounds: the scores, which count twice, their
    softmax, and the four gradients of the backward."""
    drops = int(dropout_of(point) > 0)
    return 3 + drops if point.mode == "fwd" else 7 + 2 * drops


def flash_roundings(point: Point) -> int:
    """Return how many results flash attention rounds.

    The softmax is rounded before the product with v; backward, so are the output, from which the
    gradient begins, and the gradient of the scores. Scores stay in fp32, so tensors in fp32 have
    all roundings of eager attention, and those of the log-sum-exp and of δ.
    """
    capped = 2 * int(cap_of(point) > 0)  # the fast tangent has the relative error of fp16
    if point.mode == "fwd":
        return 1 + capped
    return eager_roundings(point) + 2 if point.dtype == "fp32" else 3 + capped


def flash_work(point: Point) -> Work:
    """Return the work of `_flash.py`: seven matmuls backward instead of four.

    The kernels compute the scores again, once for dk and dv and once for dq.
    """
    q, k, _, lse = sizes(point)
    seen, of_queries = seen_bytes(point), 2 * (2 * q + 2 * lse)  # q, do, lse and sums, twice
    read = 2 * q + of_queries + 2 * k + 2 * seen  # o and do too; unseen keys have a gradient of 0
    bytes_ = moved(point, (q + 2 * seen, q + lse), (read, lse + q + 2 * k))
    return Work(matmuls(point, 2, 7, unmasked_pairs(point)), bytes_)


def one_pass_work(point: Point) -> Work:
    """Return the work of `_flash_hopper_backward.py`: five matmuls backward instead of four.

    dq is a sum in fp32, which is set to 0, added to once by each block of 128 keys, and rounded.
    The additions reach the L2; they are counted once, as a read and a write. Two numbers of each
    query are stored as 32 bytes, and with a cap the log-sum-exp is stored again.
    """
    q, k, _, lse = sizes(point)
    total = q // itemsize(point.dtype) * 4
    stored = (9 if cap_of(point) > 0 else 8) * lse
    read = 4 * q + 2 * k + 2 * total + lse + stored
    written = 2 * total + q + 2 * k + stored
    bytes_ = moved(point, (q + 2 * seen_bytes(point), q + lse), (read, written))
    return Work(matmuls(point, 2, 5, unmasked_pairs(point)), bytes_)
