"""Count the bytes and FLOPs of a training step of attention, eager and fused.

Sources: the gradients of softmax(q·kᵀ)·v, each kernel reading its operands and writing its result
once; Dao et al., FlashAttention (2022), algorithm 4, for the fused backward pass.
"""

from __future__ import annotations

from gpuperf.theory.attention import SOFTMAX_FLOPS, Kernel, eager, fused

FORWARD, EAGER_BACKWARD, FUSED_BACKWARD = 2, 4, 5  # products; a fused backward repeats q·kᵀ


def backward_kernels(
    n: int, d: int, heads: int, size: int, more: frozenset[str]
) -> tuple[Kernel, ...]:
    """Return the kernels of the backward pass of eager attention; the parameters are those of
    `attention.kernels`. The probabilities, and a dropout mask of one byte an element, were kept."""
    scores, tensor = heads * n * n, heads * n * d
    u, v, product = scores * size, tensor * size, 2 * scores * d
    listed = [("dv = pᵀ·do", u + 2 * v, product), ("dp = do·vᵀ", 2 * v + u, product)]
    listed += [("dropout", 2 * u + scores, 2 * scores)] if "dropout" in more else []
    listed += [("softmax", 3 * u, SOFTMAX_FLOPS * scores)]
    listed += [("mask", 2 * u, scores)] if "mask" in more else []
    listed += [("scale", 2 * u, scores)] if "scale" in more else []
    return (*listed, ("dq = ds·k", u + 2 * v, product), ("dk = dsᵀ·q", u + 2 * v, product))


def eager_step_bytes(n: int, d: int, heads: int, size: int, more: frozenset[str]) -> int:
    """Return the bytes of a forward and a backward pass of eager attention."""
    backward = sum(moved for _, moved, _ in backward_kernels(n, d, heads, size, more))
    return eager(n, d, heads, size, more)[1] + backward


def fused_step_bytes(n: int, d: int, heads: int, size: int) -> int:
    """Return the least bytes of both passes of fused attention: q, k, v and o forward; these, do
    and the three gradients backward."""
    return fused(n, d, heads, size)[1] + 8 * heads * n * d * size


def step_flops(n: int, d: int, heads: int, fuses: bool) -> int:
    """Return the FLOPs of the products of both passes: six products, or seven where the backward
    pass computes the scores again."""
    products = FORWARD + (FUSED_BACKWARD if fuses else EAGER_BACKWARD)
    return products * 2 * heads * n * n * d


def exponential_share(d: int, tensor_rate: float, special_rate: float) -> float:
    """Return the time of the exponentials of fused attention over that of its products: one result
    of the special-function unit for 4·d FLOPs, each at its rate a second."""
    return tensor_rate / (4 * d * special_rate)
