"""Attention, under all its names: matmuls over the S pairs of query and key that the mask shows.

    forward    2·b·h·S·(d_qk + d_v) FLOP          q kᵀ and p v
    backward   2·b·h·S·(2·d_qk + 2·d_v)           dv, dp, dq, dk; a fused one does q kᵀ again,
                                                  which is its work and not the model's

h are the heads of queries; k and v are read by their own, which may be fewer. S is exact: a causal
mask is aligned lower right (query i sees the keys j ≤ i + n_k − n_q) by FlashAttention since 2.1,
upper left (j ≤ i) by everything else of torch's, and as `custom_mask_type` says by
`_efficient_attention_forward`. A mask that is a tensor hides nobody knows what: all pairs count.
Neither do FLOPs count the softmax, nor bytes the few of a random state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpuperf.model.aten import Tensor
from gpuperf.model.cost import Bytes, Work
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.matmul import matrices
from gpuperf.profile.cost.tally import (
    Rule,
    Rules,
    Tally,
    computed,
    fresh,
    inferred,
    memory,
    moved,
    multiplied,
    named,
)

LSE_ROWS = 32  # kAlignLSE of torch's efficient attention: its log-sum-exp is padded to multiples
UPPER_LEFT, LOWER_RIGHT = 1, 2  # custom_mask_type


@dataclass(frozen=True)
class Signature:
    """Positions of arguments; −1: there is none."""

    causal: int = 5
    mask: int = -1  # a tensor that is added to the scores, or hides some
    query: int = 0
    lower_right: bool = False
    typed: bool = False  # `causal` is a custom_mask_type
    heads_last: bool = False  # (b, n, h, d)
    lengths: int = -1  # cumulative lengths of q and of k, then the longest of each
    left: int = -1  # how many keys before its own a query sees, and after it
    window: int = -1  # how many keys a query sees, its own the last
    hides: tuple[int, ...] = ()  # tensors that say which keys there are at all
    sums: int = 0  # where is said whether the log-sum-exp is kept; 0: it is, −1: it is not
    padded: bool = False
    asked: int = -1  # of the gradients, where is said whether the mask's is one
    results: int = 2  # that are counted


FLASH = Signature(4, lower_right=True)
FLASH_BACK = Signature(11, query=1, lower_right=True, lengths=6)
PACKED = Signature(8, lower_right=True, heads_last=True, lengths=3, left=11, hides=(13, 15))
PACKED_BACK = replace(PACKED, causal=11, query=1, lengths=6, left=15, hides=())
EFFICIENT = Signature(6, mask=3, sums=4, padded=True)
EFFICIENT_PACKED = Signature(
    9, mask=3, typed=True, heads_last=True, lengths=4, window=13, hides=(12,), sums=10, padded=True
)
CUDNN_BACK = Signature(14, mask=8, query=1, lengths=9)
FORWARD = {
    "scaled_dot_product_attention": Signature(5, mask=3, sums=-1, results=1),
    "_scaled_dot_product_flash_attention": FLASH,
    "_scaled_dot_product_flash_attention_for_cpu": Signature(4, mask=5),
    "_scaled_dot_product_efficient_attention": EFFICIENT,
    "_scaled_dot_product_cudnn_attention": Signature(6, mask=3, sums=4),
    "_scaled_dot_product_fused_attention_overrideable": Signature(5, mask=3),
    "_flash_attention_forward": PACKED,
    "_efficient_attention_forward": EFFICIENT_PACKED,
    "_cudnn_attention_forward": Signature(10, mask=3, lengths=4, sums=8),
}
BACKWARD = {
    "_scaled_dot_product_flash_attention_backward": FLASH_BACK,
    "_scaled_dot_product_flash_attention_for_cpu_backward": Signature(7, mask=8, query=1),
    "_scaled_dot_product_efficient_attention_backward": Signature(11, mask=4, query=1, asked=10),
    "_scaled_dot_product_cudnn_attention_backward": CUDNN_BACK,
    "_scaled_dot_product_fused_attention_overrideable_backward": Signature(
        13, mask=4, query=1, asked=5
    ),
    "_flash_attention_backward": PACKED_BACK,
    "_efficient_attention_backward": Signature(
        14, mask=4, query=1, typed=True, heads_last=True, lengths=6, window=18, asked=15
    ),
    "_cudnn_attention_backward": CUDNN_BACK,
}


@dataclass(frozen=True)
class Sizes:
    """b sequences of n_q queries and n_k keys, in h heads of d_qk and d_v."""

    b: int
    h: int
    n_q: int
    n_k: int
    d_qk: int
    d_v: int


def ramp(n: int, c: int, m: int) -> int:
    """Σ over i < n of i + c, held within 0 … m."""

    def rising(x: int) -> int:  # Σ over i < n of max(0, i + x)
        first, last = max(0, x), max(0, n + x)
        return (last * (last - 1) - first * (first - 1)) // 2

    return rising(c) - rising(c - m)


def pairs(n_q: int, n_k: int, offset: int = 0, left: int = -1, right: int = -1) -> int:
    """Pairs (i, j) of query and key with i + offset − left ≤ j ≤ i + offset + right; −1: any."""
    ends = n_q * n_k if right < 0 else ramp(n_q, offset + right + 1, n_k)
    begins = 0 if left < 0 else ramp(n_q, offset - left, n_k)
    return ends - begins


def sizes_of(args: Arguments, of: Signature) -> Sizes:
    """Raises: Unreadable for tensors that do not attend, and for lengths that nobody knows."""
    q, k, v = (args.tensor(of.query + at).shape for at in range(3))
    ends = args.optional(of.lengths) if of.lengths >= 0 else None
    if ends and ends.size > 1:  # an empty one stands for none
        return packed_sizes(args, of, q, k, v)
    if min(len(q), len(k), len(v)) < 2:
        raise Unreadable("attention is of matrices")
    if of.heads_last:
        q, k, v = ((*s[:-3], s[-2], s[-3], s[-1]) if len(s) > 2 else s for s in (q, k, v))
    heads, shared = (s[-3] if len(s) > 2 else 1 for s in (q, k))
    if k[-1] != q[-1] or v[-2] != k[-2] or (heads and (not shared or heads % shared)):
        raise Unreadable(f"{str(q)[:40]} does not attend to {str(k)[:40]}")
    return Sizes(math.prod(q[:-3]), heads, q[-2], k[-2], q[-1], v[-1])


def packed_sizes(
    args: Arguments, of: Signature, q: Sequence[int], k: Sequence[int], v: Sequence[int]
) -> Sizes:
    """Sequences one after another, (…, tokens, h, d): known only where all are the longest."""
    ends = args.tensor(of.lengths)
    b, n_q, n_k = ends.size - 1, args.integer(of.lengths + 2), args.integer(of.lengths + 3)
    if min(len(q), len(k), len(v)) < 3 or (b * n_q, b * n_k) != (q[-3], k[-3]):
        raise Unreadable("how long each sequence is, only the tensor says")
    return Sizes(b, q[-2], n_q, n_k, q[-1], v[-1])


def shown(args: Arguments, of: Signature, sizes: Sizes) -> int:
    """The pairs of one head that the mask shows. Raises: Unreadable where nobody knows."""
    if any(args.tensors(at) for at in of.hides):
        raise Unreadable("which keys there are, only a tensor says")
    lower, n_q, n_k = of.lower_right, sizes.n_q, sizes.n_k
    if of.typed:
        mask = args.integer(of.causal)
        if mask not in (0, UPPER_LEFT, LOWER_RIGHT):
            raise Unreadable(f"unknown mask type {mask}")
        causal, lower = mask > 0, mask == LOWER_RIGHT
    else:
        causal = args.flag(of.causal, False)
    left, right = bounds(args, of)
    offset = n_k - n_q if lower else 0
    return pairs(n_q, n_k, offset, left, 0 if causal else right)


def bounds(args: Arguments, of: Signature) -> tuple[int, int]:
    """How many keys a query sees to the left and to the right of its own; −1: all."""
    if of.left >= 0:
        left, right = (args.integer(at) if args.text(at) else -1 for at in (of.left, of.left + 1))
        return left, right
    if of.window >= 0 and args.text(of.window):
        return max(args.integer(of.window), 0) - 1, -1
    return -1, -1


def summed(q: Tensor, sizes: Sizes, padded: bool) -> Tensor:
    """The log-sum-exp of every row of scores."""
    rows = -(-sizes.n_q // LSE_ROWS) * LSE_ROWS if padded else sizes.n_q
    return Tensor((sizes.b, sizes.h, rows), "fp64" if q.dtype == "fp64" else "fp32")


def kept(args: Arguments, of: Signature) -> bool:
    """Whether a forward returns the log-sum-exp."""
    return args.flag(of.sums) if of.sums > 0 else of.sums == 0


def at_positions(args: Arguments, of: Signature) -> Signature:
    """*of*, moved where the call is of the overload with scales of 8-bit q, k and v."""
    if args.name == "_scaled_dot_product_flash_attention" and args.count > 7:
        return replace(of, causal=of.causal + 3)
    if args.name == "_flash_attention_forward" and any(args.tensors(at) for at in (10, 11, 12)):
        return replace(of, left=of.left + 3, hides=(16,))
    return of


def forward(signature: Signature) -> Rule:
    """o and the log-sum-exp of q, k and v."""

    def rule(args: Arguments) -> Tally:
        of = at_positions(args, signature)
        sizes = sizes_of(args, of)
        q, k, v = (args.tensor(of.query + at) for at in range(3))

        def infer() -> Iterable[Tensor]:
            yield Tensor((*q.shape[:-1], v.shape[-1]), q.dtype)
            if kept(args, of):
                yield summed(q, sizes, of.padded)

        mask = args.tensors(of.mask) if of.mask >= 0 else ()
        written = args.call.outputs[: of.results] or inferred(infer)
        count = sizes.b * sizes.h * shown(args, of, sizes) * (sizes.d_qk + sizes.d_v)
        return Tally(multiplied(count, q.dtype), moved((q, k, v, *mask), written))

    return rule


def backward(of: Signature) -> Rule:
    """dq, dk and dv, and the mask's where it is asked for, of do, q, k, v, o, log-sum-exp."""

    def rule(args: Arguments) -> Tally:
        sizes = sizes_of(args, of)
        q, k, v = (args.tensor(of.query + at) for at in range(3))
        mask = args.tensors(of.mask) if of.mask >= 0 else ()
        wanted = of.asked >= 0 and args.flags(of.asked, 4 if of.asked != 15 else 1)[-1]
        made = (*(fresh(t) for t in (q, k, v)), *((fresh(t) for t in mask) if wanted else ()))
        moves = moved(gradient_inputs(args, of), args.call.outputs or made)
        each = sizes.b * sizes.h * shown(args, of, sizes)
        model = multiplied(2 * each * (sizes.d_qk + sizes.d_v), q.dtype)
        done = multiplied(each * (3 * sizes.d_qk + 2 * sizes.d_v), q.dtype)
        return Tally(model, moves, Work(done, (moves,)))

    return rule


def gradient_inputs(args: Arguments, of: Signature) -> list[Tensor]:
    """What a backward reads: do, q, k, v, o, the log-sum-exp and the mask."""
    # No lengths and no random states: a handful of bytes, of dtypes that nothing else has.
    floats = ("fp64", "fp32", "bf16", "fp16", "fp8")
    first = [t for at in range(11) for t in args.tensors(at) if t.dtype in floats]
    masks = args.tensors(of.mask) if of.mask >= 0 else ()
    return [*first, *(t for t in masks if t not in first)]


def composed(args: Arguments) -> Tally:
    """Matmul, softmax, matmul: o and the shares. Its kernels do hidden pairs too, and move u bytes
    of scores four times, six with a mask (arXiv 2205.14135, algorithm 0)."""
    of = Signature(5, mask=3)
    sizes = sizes_of(args, of)
    q, k, v, masks = *(args.tensor(at) for at in range(3)), args.tensors(3)
    scores = Tensor((sizes.b, sizes.h, sizes.n_q, sizes.n_k), q.dtype)
    out = Tensor((*q.shape[:-1], v.shape[-1]), q.dtype)
    moves = moved((q, k, v, *masks), args.call.outputs[:2] or (out, scores))
    causal = args.flag(of.causal, False)
    each, wide = sizes.b * sizes.h, sizes.d_qk + sizes.d_v
    model = multiplied(each * shown(args, of, sizes) * wide, q.dtype, args.tf32)
    done = multiplied(each * sizes.n_q * sizes.n_k * wide, q.dtype, args.tf32)
    passes = 3 if masks or causal else 2
    more = Bytes(
        memory((q, k, v, *masks)) + passes * scores.bytes, out.bytes + passes * scores.bytes
    )
    return Tally(model, moves, Work(done, (more,)))


def flex(args: Arguments) -> Tally:
    """flex_attention: which pairs its mask shows, only a function says."""
    q, k, v = (args.tensor(at) for at in range(3))
    out = args.call.outputs[:1] or (Tensor((*q.shape[:-1], *v.shape[-1:]), q.dtype),)
    return Tally((), moved((q, k, v), out), known=False)


def encoder(args: Arguments) -> Tally:
    """nn.MultiheadAttention and nn.TransformerEncoderLayer at inference, in one operator: every
    matrix meets every token, and attention of all pairs; of the layer, two layer norms."""
    layer = args.name == "_transformer_encoder_layer_fwd"
    x = args.tensor(0)
    b, n, width = x.shape if len(x.shape) == 3 else (0, 0, 0)
    weights = [t for at in range(3, 18 if layer else 9) for t in args.tensors(at)]
    same = layer or (args.tensor(1).shape == x.shape == args.tensor(2).shape)
    if not (b and same and matrices(weights)):
        raise Unreadable("no self-attention of (b, n, d)")
    flops = multiplied(b * n * matrices(weights) + 2 * b * n * n * width, x.dtype, args.tf32)
    if layer:
        flops += computed(x.size, x.dtype, 14, sums=True)
    given = [x] if layer else [args.tensor(at) for at in range(3)]
    return Tally(flops, moved([*given, *weights], args.call.outputs[:1] or (fresh(x),)))


MATH = "_scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps"
RULES: Rules = {
    **{name: ("attention", forward(of)) for name, of in FORWARD.items()},
    **{name: ("attention", backward(of)) for name, of in BACKWARD.items()},
    **named("attention", composed, MATH),
    **named("attention", flex, "flex_attention"),
    **named("attention", encoder, "_native_multi_head_attention _transformer_encoder_layer_fwd"),
}
