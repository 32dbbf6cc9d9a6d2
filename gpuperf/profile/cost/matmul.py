"""Count matmuls under all their names: 2·m·n·k FLOPs, and elementwise FLOPs on m·n for bias, scales
and activation.

A recurrent layer multiplies every token with each of its matrices: 2·tokens·Σ elements, and twice
that backward; the FLOPs of its gates are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpuperf.model.aten import Tensor
from gpuperf.model.cost import Flops
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.shapes import broadcast, promoted
from gpuperf.profile.cost.tally import (
    Rule,
    Rules,
    Tally,
    computed,
    multiplied,
    named,
    tally,
    weight_gradients,
)

# FLOPs of _addmm_activation; gelu of cuBLASLt's epilogue is the tanh form: see `pointwise`.
RELU, GELU = (1, 0), (8, 1)
LETTERS = 52  # the most letters that an equation of einsum may have
MOST_EQUATION = 500  # characters: a longer equation is not parsed


def product_shape(a: Sequence[int], b: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return the shape of torch.matmul(a, b), and the k it sums over. Raises: Unreadable."""
    if not a or not b:
        raise Unreadable("matmul needs a dimension")
    rows, columns = tuple(a[-2:-1]), tuple(b[-1:]) if len(b) > 1 else ()
    k = a[-1]
    if k != (b[-2] if len(b) > 1 else b[-1]):
        raise Unreadable(f"{str(a)[:60]} @ {str(b)[:60]}")
    return (*broadcast(a[:-2], b[:-2]), *rows, *columns), k


def product(
    args: Arguments, a: Tensor, b: Sequence[int]
) -> tuple[tuple[int, ...], tuple[Flops, ...]]:
    """Return the shape of *a* times a tensor of shape *b*, and its FLOPs in the dtype of *a*."""
    shape, k = product_shape(a.shape, b)
    return shape, multiplied(math.prod(shape) * k, a.dtype, args.tf32)


def check_ranks(a: Tensor, b: Tensor, ranks: tuple[int, int] | None) -> None:
    """Raise Unreadable if the operands have other ranks than *ranks*."""
    if ranks and (len(a.shape), len(b.shape)) != ranks:
        raise Unreadable(f"the ranks are not {ranks}")


def plain(ranks: tuple[int, int] | None = None) -> Rule:
    """Return the rule for a @ b, whose operands have *ranks* (None: any)."""

    def rule(args: Arguments) -> Tally:
        a, b = args.first(2)
        check_ranks(a, b, ranks)
        shape, flops = product(args, a, b.shape)
        default = "int32" if args.name == "_int_mm" else a.dtype
        # Argument 2 is the dtype of mm.dtype; a trace of mm.out has a tensor there.
        return tally(args, flops, (a, b), lambda: (Tensor(shape, args.dtype(2, default)),))

    return rule


def added(ranks: tuple[int, int], summed: bool = False) -> Rule:
    """Return the rule for beta·self + alpha·(a @ b); with *summed*, it adds up a batch."""

    def rule(args: Arguments) -> Tally:
        bias, a, b = args.first(3)
        check_ranks(a, b, ranks)
        shape, flops = product(args, a, b.shape)
        out = Tensor(shape[summed:], bias.dtype)
        broadcast(bias.shape, out.shape)
        # `addmm.dtype` has a dtype before beta and alpha.
        beta = 4 if args.overload.startswith("dtype") else 3
        biased = args.number(beta, 1.0) != 0
        plain = biased * (1 + args.scales(beta)) + args.scales(beta + 1)
        flops += computed(out.size, out.dtype, plain)
        if args.name == "_addmm_activation":
            flops += computed(out.size, out.dtype, *(GELU if args.flag(5, False) else RELU))
        return tally(args, flops, (bias, a, b) if biased else (a, b), (out,))

    return rule


def linear(args: Arguments) -> Tally:
    """Return the cost of `linear`: x (…, k) times a weight (n, k) or (k), and a bias (n)."""
    x, weight = args.first(2)
    bias = args.tensors(2)[:1]
    shape, flops = product(args, x, weight.shape[::-1])
    out = Tensor(shape, x.dtype)
    flops += computed(out.size, x.dtype, len(bias))
    return tally(args, flops, (x, weight, *bias), (out,))


def linear_backward(args: Arguments) -> Tally:
    """Count the backward (x (…, k), dy (…, n), weight (n, k), wanted gradients) of `linear`."""
    x, dy, weight = args.first(3)
    _, n = product_shape(dy.shape, weight.shape)
    return weight_gradients(args, (dy, x, weight), x.size * n, n, args.flags(3, 3))


def scaled(args: Arguments) -> Tally:
    """Count `_scaled_mm`, a @ b and a bias; the scales of 8-bit operands have no FLOPs."""
    a, b = args.first(2)
    shape, flops = product(args, a, b.shape)
    second = args.name.endswith("_v2")
    bias = args.optional(8 if second else 4)
    if bias:
        flops += computed(math.prod(shape), bias.dtype, 1)
    read = args.tensors(*((0, 1, 2, 5, 8) if second else range(6)))
    dtype_at = 9 if second else 6
    return tally(args, flops, read, lambda: (Tensor(shape, args.dtype(dtype_at, a.dtype)),))


def grouped(args: Arguments) -> Tally:
    """Count `_grouped_mm`, matmuls of successive pieces of a and b, which `offs` may divide."""
    a, b = args.first(2)
    if a.shape[-1:] != b.shape[-2:-1] or not {len(a.shape), len(b.shape)} <= {2, 3}:
        raise Unreadable("the operands are not matrices side by side")
    scales = "scaled" in args.name
    cut = args.optional(4 if scales else 2)
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    lead: tuple[int, ...] = ()
    if len(a.shape) == len(b.shape):
        lead = a.shape[:-2] if len(a.shape) == 3 else (cut.size,) if cut else ()
    matmuls = math.prod(lead) if len(a.shape) == len(b.shape) == 3 else 1
    flops = multiplied(matmuls * m * n * k, a.dtype, args.tf32)
    dtype_at = 7 if scales else 4
    return tally(
        args,
        flops,
        args.call.tensors,
        lambda: (Tensor((*lead, m, n), args.dtype(dtype_at, a.dtype)),),
    )


def packed(args: Arguments) -> Tally:
    """Count a (m, k) times packed weights of 4 or 8 bits; n comes from the scales of 4-bit weights,
    and from the first axis of 8-bit ones."""
    a, weight = args.first(2)
    if len(a.shape) != 2 or not weight.shape:
        raise Unreadable("the operands are not matrices")
    n = args.tensor(3).shape[-2:-1] if "int4" in args.name else weight.shape[:1]
    out = Tensor((a.shape[0], *n), a.dtype)
    flops = multiplied(out.size * a.shape[1], a.dtype, args.tf32)
    return tally(args, flops, args.call.tensors, (out,))


def outer(args: Arguments) -> Tally:
    """Return the cost of the outer product a bᵀ of two vectors, for `addr` with a sum."""
    given = args.first(3 if args.name == "addr" else 2)
    a, b = given[-2:]
    if (len(a.shape), len(b.shape)) != (1, 1):
        raise Unreadable("the operands are not vectors")
    out = Tensor((*a.shape, *b.shape), promoted(given))
    return tally(args, computed(out.size, out.dtype, len(given) - 1), given, (out,))


def einsum(args: Arguments) -> Tally:
    """Count `einsum` of two operands: a product for every combination of values of the letters,
    summed over the letters that the result leaves out.

    Raises: Unreadable for more operands: torch chooses the order in which it multiplies them.
    """
    equation, operands = (args.text(0) or "").strip("'\""), args.tensors(1)
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    letters = {c for c in left + right if c != ","}
    if not arrow or len(equation) > MOST_EQUATION or len(terms) != 2 or len(operands) != 2:
        raise Unreadable("not an equation of two operands")
    if not all(c.isalpha() for c in letters) or len(letters) > LETTERS:
        raise Unreadable("not a plain equation")
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, n in zip(term, operand.shape, strict=True):
            sizes[letter] = max(n, sizes.get(letter, 1))
    count = math.prod(sizes[letter] for letter in letters)
    out = Tensor(tuple(sizes[letter] for letter in right), promoted(operands))
    if set(right) != letters:
        flops = multiplied(count, out.dtype, args.tf32)
    else:
        flops = computed(count, out.dtype, plain=1)
    return tally(args, flops, operands, (out,))


def matrices(weights: Iterable[Tensor]) -> int:
    """Return the elements of the matrices among *weights*, which each token is multiplied by."""
    return sum(weight.size for weight in weights if len(weight.shape) == 2)


def recurrent(weights: tuple[int, ...], times: int) -> Rule:
    """Return the rule for a recurrent layer whose arguments at the positions *weights* are its
    weights; it has *times* the FLOPs of a forward pass."""

    def rule(args: Arguments) -> Tally:
        x, used = args.tensor(0), args.tensors(*weights)
        if len(x.shape) < 2 or not matrices(used):
            raise Unreadable("a sequence or the weights are missing")
        tokens = math.prod(x.shape[:-1])
        flops = multiplied(times * tokens * matrices(used), x.dtype, args.tf32)
        # cuDNN's weights are views of one buffer, which is passed too.
        buffer = args.tensors(3) if args.name.startswith("_cudnn") else ()
        return tally(args, flops, [t for t in args.call.tensors if t not in buffer], ())

    return rule


RULES: Rules = {
    **named("matmul", plain((2, 2)), "mm _int_mm"),
    **named("matmul", plain((3, 3)), "bmm"),
    **named("matmul", plain((2, 1)), "mv"),
    **named("matmul", plain((1, 1)), "dot vdot"),
    **named("matmul", plain(), "matmul linalg_matmul"),
    **named("matmul", added((2, 2)), "addmm _addmm_activation"),
    **named("matmul", added((3, 3)), "baddbmm"),
    **named("matmul", added((3, 3), summed=True), "addbmm"),
    **named("matmul", added((2, 1)), "addmv"),
    **named("matmul", linear, "linear mkldnn_linear"),
    **named("matmul", linear_backward, "linear_backward"),
    **named("matmul", scaled, "_scaled_mm _scaled_mm_v2"),
    **named("matmul", grouped, "_grouped_mm _scaled_grouped_mm"),
    **named("matmul", packed, "_weight_int8pack_mm _weight_int4pack_mm"),
    **named("elementwise", outer, "addr ger outer"),
    **named("matmul", einsum, "einsum"),
    **named("matmul", recurrent((1,), 1), "_cudnn_rnn miopen_rnn"),
    **named("matmul", recurrent((1,), 2), "_cudnn_rnn_backward"),
    **named("matmul", recurrent((1, 2), 1), "mkldnn_rnn_layer"),
    **named("matmul", recurrent((1, 2), 2), "mkldnn_rnn_layer_backward"),
    **named("matmul", recurrent((2, 3), 1), "lstm gru rnn_tanh rnn_relu"),
}
