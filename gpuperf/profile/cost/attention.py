"""Count attention under all its names: matmuls over the S pairs of query and key that are visible.

    forward    2·b·h·S·(d_qk + d_v) FLOP          q kᵀ and p v
    backward   2·b·h·S·(2·d_qk + 2·d_v)           dv, dp, dq, dk; a fused one does q kᵀ again,
                                                  which is its work and not the model's

h are the heads of queries; k and v are read by their own, which may be fewer. S is exact: a causal
mask is aligned lower right (query i sees the keys j ≤ i + n_k − n_q) by FlashAttention since 2.1,
by `custom_mask_type` in `_efficient_attention_forward`, and upper left (j ≤ i) by all other
operators of torch. If the mask is a tensor all pairs count, since its values are unknown. The FLOPs
of the softmax and the bytes of a random state are not counted.
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
    FLOATING,
    Rule,
    Rules,
    Tally,
    computed,
    like,
    memory,
    moved,
    multiplied,
    named,
    results,
)

LSE_ROWS = 32  # kAlignLSE of torch's efficient attention: its log-sum-exp is padded to multiples
UPPER_LEFT, LOWER_RIGHT = 1, 2  # custom_mask_type


@dataclass(frozen=True)
class Attention:
    """Positions of an attention's arguments; −1 if the operator has none."""

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
    sums: int = 0  # the flag for a log-sum-exp; 0: it is always returned, −1: never
    padded: bool = False  # the log-sum-exp is padded to multiples of `LSE_ROWS`
    wanted: int = -1  # the flags of the gradients that are asked for, that of the mask last
    gradients: int = 4  # the number of these flags
    results: int = 2  # how many of the results are counted


PACKED = Attention(8, lower_right=True, heads_last=True, lengths=3, left=11, hides=(13, 15))
EFFICIENT_PACKED = Attention(
    9, mask=3, typed=True, heads_last=True, lengths=4, window=13, hides=(12,), sums=10, padded=True
)
CUDNN_BACK = Attention(14, mask=8, query=1, lengths=9)
FORWARD = {
    "scaled_dot_product_attention": Attention(5, mask=3, sums=-1, results=1),
    "_scaled_dot_product_flash_attention": Attention(4, lower_right=True),
    "_scaled_dot_product_flash_attention_for_cpu": Attention(4, mask=5),
    "_scaled_dot_product_efficient_attention": Attention(6, mask=3, sums=4, padded=True),
    "_scaled_dot_product_cudnn_attention": Attention(6, mask=3, sums=4),
    "_scaled_dot_product_fused_attention_overrideable": Attention(5, mask=3),
    "_flash_attention_forward": PACKED,
    "_efficient_attention_forward": EFFICIENT_PACKED,
    "_cudnn_attention_forward": Attention(10, mask=3, lengths=4, sums=8),
}
BACKWARD = {
    "_scaled_dot_product_flash_attention_backward": Attention(
        11, query=1, lower_right=True, lengths=6
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": Attention(7, mask=8, query=1),
    "_scaled_dot_product_efficient_attention_backward": Attention(11, mask=4, query=1, wanted=10),
    "_scaled_dot_product_cudnn_attention_backward": CUDNN_BACK,
    "_scaled_dot_product_fused_attention_overrideable_backward": Attention(
        13, mask=4, query=1, wanted=5
    ),
    "_flash_attention_backward": replace(PACKED, causal=11, query=1, lengths=6, left=15, hides=()),
    "_efficient_attention_backward": Attention(
        14, 4, 1, typed=True, heads_last=True, lengths=6, window=18, wanted=15, gradients=1
    ),
    "_cudnn_attention_backward": CUDNN_BACK,
}


@dataclass(frozen=True)
class Sizes:
    """Sizes of an attention: b sequences of n_q queries and n_k keys, h heads of queries, d_qk and
    d_v elements of a key and a value."""

    b: int
    h: int
    n_q: int
    n_k: int
    d_qk: int
    d_v: int


def ramp(n: int, c: int, m: int) -> int:
    """Return the sum over i = 0 … n − 1 of i + c, clipped to 0 … m."""

    def rising(x: int) -> int:  # Σ over i < n of max(0, i + x)
        first, last = max(0, x), max(0, n + x)
        return (last * (last - 1) - first * (first - 1)) // 2

    return rising(c) - rising(c - m)


def pairs(n_q: int, n_k: int, offset: int = 0, left: int = -1, right: int = -1) -> int:
    """Return the number of pairs (query i < n_q, key j < n_k) that a window leaves visible.

    Those are the pairs with i + offset − left ≤ j ≤ i + offset + right; −1 sets no bound.
    """
    ends = n_q * n_k if right < 0 else ramp(n_q, offset + right + 1, n_k)
    begins = 0 if left < 0 else ramp(n_q, offset - left, n_k)
    return ends - begins


def sizes_of(args: Arguments, of: Attention) -> Sizes:
    """Return the sizes of a call with the signature *of*.

    Raises: Unreadable if the shapes do not fit each other, or if lengths are unknown.
    """
    q, k, v = (tensor.shape for tensor in args.first(3, of.query))
    ends = args.optional(of.lengths)
    if ends and ends.size > 1:  # an empty one stands for none
        return packed_sizes(args, of, q, k, v)
    if min(len(q), len(k), len(v)) < 2:
        raise Unreadable("attention needs matrices")
    if of.heads_last:
        q, k, v = ((*s[:-3], s[-2], s[-3], s[-1]) if len(s) > 2 else s for s in (q, k, v))
    heads, shared = (s[-3] if len(s) > 2 else 1 for s in (q, k))
    if k[-1] != q[-1] or v[-2] != k[-2] or (heads and (not shared or heads % shared)):
        raise Unreadable(f"{str(q)[:40]} does not attend to {str(k)[:40]}")
    return Sizes(math.prod(q[:-3]), heads, q[-2], k[-2], q[-1], v[-1])


def packed_sizes(
    args: Arguments, of: Attention, q: Sequence[int], k: Sequence[int], v: Sequence[int]
) -> Sizes:
    """Return the sizes of a call on packed sequences, one tensor (…, tokens, h, d).

    Raises: Unreadable if the sequences differ in length: their lengths are values of a tensor.
    """
    ends = args.tensor(of.lengths)
    b, n_q, n_k = ends.size - 1, args.integer(of.lengths + 2), args.integer(of.lengths + 3)
    if min(len(q), len(k), len(v)) < 3 or (b * n_q, b * n_k) != (q[-3], k[-3]):
        raise Unreadable("the lengths of the sequences are unknown")
    return Sizes(b, q[-2], n_q, n_k, q[-1], v[-1])


def visible(args: Arguments, of: Attention, sizes: Sizes) -> int:
    """Return the number of query-key pairs of one head and sequence that are not masked.

    Raises: Unreadable if only the values of a tensor say so.
    """
    if args.tensors(*of.hides):
        raise Unreadable("only the values of a tensor say which keys there are")
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


def bounds(args: Arguments, of: Attention) -> tuple[int, int]:
    """Return how many keys before and after its own a query sees; −1 means all."""
    if of.left >= 0:
        left, right = (args.integer(at) if args.text(at) else -1 for at in (of.left, of.left + 1))
        return left, right
    if of.window >= 0 and args.text(of.window):
        return max(args.integer(of.window), 0) - 1, -1
    return -1, -1


def log_sum_exp(q: Tensor, sizes: Sizes, padded: bool) -> Tensor:
    """Return the tensor of the log-sum-exp of each row of scores, *padded* or not."""
    rows = -(-sizes.n_q // LSE_ROWS) * LSE_ROWS if padded else sizes.n_q
    return Tensor((sizes.b, sizes.h, rows), "fp64" if q.dtype == "fp64" else "fp32")


def at_positions(args: Arguments, of: Attention) -> Attention:
    """Return *of* with its positions shifted if *args* also have the scales of 8-bit q, k and v."""
    if args.name == "_scaled_dot_product_flash_attention" and args.count > 7:
        return replace(of, causal=of.causal + 3)
    if args.name == "_flash_attention_forward" and args.tensors(10, 11, 12):
        return replace(of, left=of.left + 3, hides=(16,))
    return of


def forward(signature: Attention) -> Rule:
    """Return the rule for an attention of q, k and v that returns o and its log-sum-exp."""

    def rule(args: Arguments) -> Tally:
        of = at_positions(args, signature)
        sizes = sizes_of(args, of)
        q, k, v = args.first(3, of.query)

        def infer() -> Iterable[Tensor]:
            yield Tensor((*q.shape[:-1], v.shape[-1]), q.dtype)
            if args.flag(of.sums) if of.sums > 0 else of.sums == 0:
                yield log_sum_exp(q, sizes, of.padded)

        written = results(args, infer)[: of.results]
        count = sizes.b * sizes.h * visible(args, of, sizes) * (sizes.d_qk + sizes.d_v)
        read = (q, k, v, *args.tensors(of.mask))
        return Tally(multiplied(count, q.dtype), moved(read, written))

    return rule


def backward(of: Attention) -> Rule:
    """Return the rule for a backward that returns dq, dk, dv and the mask's gradient, if wanted."""

    def rule(args: Arguments) -> Tally:
        sizes = sizes_of(args, of)
        q, k, v = args.first(3, of.query)
        mask = of.wanted >= 0 and args.flags(of.wanted, of.gradients)[-1]
        made = map(like, (q, k, v, *(args.tensors(of.mask) if mask else ())))
        moves = moved(gradient_inputs(args, of), results(args, made))
        each = sizes.b * sizes.h * visible(args, of, sizes)
        model = multiplied(2 * each * (sizes.d_qk + sizes.d_v), q.dtype)
        done = multiplied(each * (3 * sizes.d_qk + 2 * sizes.d_v), q.dtype)
        return Tally(model, moves, Work(done, (moves,)))

    return rule


def gradient_inputs(args: Arguments, of: Attention) -> list[Tensor]:
    """Return what a backward reads: do, q, k, v, o, the log-sum-exp and the mask."""
    # Lengths and random states are left out: they are a few bytes, and not floating-point.
    first = [t for t in args.tensors(*range(11)) if t.dtype in FLOATING]
    return [*first, *(t for t in args.tensors(of.mask) if t not in first)]


def composed(args: Arguments) -> Tally:
    """Count attention as matmul, softmax, matmul, which returns o and the softmax's result.

    Its kernels compute masked pairs too, and move the scores four times, six with a mask
    (arXiv 2205.14135, algorithm 0).
    """
    of = Attention(5, mask=3)
    sizes = sizes_of(args, of)
    (q, k, v), masks = args.first(3), args.tensors(3)
    scores = Tensor((sizes.b, sizes.h, sizes.n_q, sizes.n_k), q.dtype)
    out = Tensor((*q.shape[:-1], v.shape[-1]), q.dtype)
    moves = moved((q, k, v, *masks), results(args, (out, scores))[:2])
    causal = args.flag(of.causal, False)
    each, wide = sizes.b * sizes.h, sizes.d_qk + sizes.d_v
    model = multiplied(each * visible(args, of, sizes) * wide, q.dtype, args.tf32)
    done = multiplied(each * sizes.n_q * sizes.n_k * wide, q.dtype, args.tf32)
    passes = 3 if masks or causal else 2
    more = Bytes(
        memory((q, k, v, *masks)) + passes * scores.bytes, out.bytes + passes * scores.bytes
    )
    return Tally(model, moves, Work(done, (more,)))


def flex(args: Arguments) -> Tally:
    """Count the bytes of flex_attention; its mask is a function, so that its FLOPs are unknown."""
    q, k, v = args.first(3)
    out = results(args, (Tensor((*q.shape[:-1], *v.shape[-1:]), q.dtype),))
    return Tally((), moved((q, k, v), out[:1]), known=False)


def encoder(args: Arguments) -> Tally:
    """Count nn.MultiheadAttention or nn.TransformerEncoderLayer at inference, as one operator.

    Every token is multiplied by every weight matrix, and attends to all tokens; an encoder layer
    has two layer norms too.
    """
    layer = args.name == "_transformer_encoder_layer_fwd"
    x = args.tensor(0)
    b, n, width = x.shape if len(x.shape) == 3 else (0, 0, 0)
    weights = args.tensors(*range(3, 18 if layer else 9))
    same = layer or (args.tensor(1).shape == x.shape == args.tensor(2).shape)
    if not (b and same and matrices(weights)):
        raise Unreadable("not a self-attention of (b, n, d)")
    flops = multiplied(b * n * matrices(weights) + 2 * b * n * n * width, x.dtype, args.tf32)
    if layer:
        flops += computed(x.size, x.dtype, 14, sums=True)
    given = [x] if layer else args.first(3)
    return Tally(flops, moved([*given, *weights], results(args, (like(x),))[:1]))


MATH = "_scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps"
RULES: Rules = {
    **{name: ("attention", forward(of)) for name, of in FORWARD.items()},
    **{name: ("attention", backward(of)) for name, of in BACKWARD.items()},
    **named("attention", composed, MATH),
    **named("attention", flex, "flex_attention"),
    **named("attention", encoder, "_native_multi_head_attention _transformer_encoder_layer_fwd"),
}
