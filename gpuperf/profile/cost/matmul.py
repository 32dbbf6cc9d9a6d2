"""Matmuls: 2·m·n·k FLOP, by whichever name; a bias, an activation is elementwise, on m·n.

A recurrent layer multiplies every token with each of its matrices: 2·tokens·Σ elements, and twice
that backward; what its gates compute beside is not counted.
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
    inferred,
    moved,
    multiplied,
    named,
)

# gelu of cuBLASLt's epilogue is the tanh form: see `pointwise`.
RELU, GELU = (1, 0), (8, 1)
LETTERS = 52  # that an equation of einsum may have
MOST_EQUATION = 500


def product_shape(a: Sequence[int], b: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The shape of torch.matmul(a, b), and the k it sums over. Raises: Unreadable."""
    if not a or not b:
        raise Unreadable("a number is no matrix")
    rows, columns = tuple(a[-2:-1]), tuple(b[-1:]) if len(b) > 1 else ()
    k = a[-1]
    if k != (b[-2] if len(b) > 1 else b[-1]):
        raise Unreadable(f"{str(a)[:60]} @ {str(b)[:60]}")
    return (*broadcast(a[:-2], b[:-2]), *rows, *columns), k


def product(args: Arguments, a: Tensor, b: Tensor) -> tuple[tuple[int, ...], tuple[Flops, ...]]:
    """The shape of a @ b, and its FLOPs. Weights of fewer bits are multiplied as *a*'s dtype."""
    shape, k = product_shape(a.shape, b.shape)
    return shape, multiplied(math.prod(shape) * k, a.dtype, args.tf32)


def plain(at: int, ranks: tuple[int, ...] = ()) -> Rule:
    """a @ b, arguments *at* and the next, each of one of *ranks* where they are said."""

    def rule(args: Arguments) -> Tally:
        a, b = args.tensor(at), args.tensor(at + 1)
        if ranks and (len(a.shape), len(b.shape)) != ranks:
            raise Unreadable("of other ranks")
        shape, flops = product(args, a, b)

        def infer() -> Iterable[Tensor]:
            default = "int32" if args.name == "_int_mm" else a.dtype
            # mm.dtype; a trace of mm.out has a tensor there.
            return (Tensor(shape, args.dtype(at + 2, default)),)

        return Tally(flops, moved((a, b), args.call.outputs or inferred(infer)))

    return rule


def added(ranks: tuple[int, int], summed: bool = False) -> Rule:
    """beta·self + alpha·(a @ b); *summed*: over their first dimension too."""

    def rule(args: Arguments) -> Tally:
        bias, a, b = (args.tensor(at) for at in range(3))
        if (len(a.shape), len(b.shape)) != ranks:
            raise Unreadable("of other ranks")
        shape, flops = product(args, a, b)
        out = Tensor(shape[summed:], bias.dtype)
        broadcast(bias.shape, out.shape)
        # `addmm.dtype` has a dtype before them.
        first = 4 if args.overload.startswith("dtype") else 3
        used = args.number(first, 1.0) != 0
        each = used * (1 + args.scales(first)) + args.scales(first + 1)
        flops += computed(out.size, out.dtype, each) + activated(args, out)
        read = (bias, a, b) if used else (a, b)
        return Tally(flops, moved(read, args.call.outputs or (out,)))

    return rule


def activated(args: Arguments, out: Tensor) -> tuple[Flops, ...]:
    """What `_addmm_activation` does to its result."""
    if args.name != "_addmm_activation":
        return ()
    return computed(out.size, out.dtype, *(GELU if args.flag(5, False) else RELU))


def linear(args: Arguments) -> Tally:
    """x (…, k) by a weight (n, k) or (k), and a bias (n)."""
    x, weight, bias = args.tensor(0), args.tensor(1), args.optional(2)
    turned = weight.shape[::-1]
    shape, k = product_shape(x.shape, turned)
    flops = multiplied(math.prod(shape) * k, x.dtype, args.tf32)
    out = Tensor(shape, x.dtype)
    if bias:
        flops += computed(out.size, x.dtype, 1)
    return Tally(flops, moved((x, weight, *((bias,) if bias else ())), args.call.outputs or (out,)))


def linear_backward(args: Arguments) -> Tally:
    """dx, dweight and dbias, those asked for, of x (…, k), dy (…, n) and weight (n, k)."""
    x, dy, weight = (args.tensor(at) for at in range(3))
    dx, dweight, dbias = args.flags(3, 3)
    _, n = product_shape(dy.shape, weight.shape)
    flops = multiplied(x.size * n * (dx + dweight), x.dtype, args.tf32)
    flops += computed(dy.size, dy.dtype, dbias)
    read = (dy, *((weight,) if dx else ()), *((x,) if dweight else ()))
    made = (Tensor(x.shape, x.dtype), Tensor(weight.shape, x.dtype), Tensor((n,), x.dtype))
    asked = tuple(t for t, wanted in zip(made, (dx, dweight, dbias), strict=True) if wanted)
    return Tally(flops, moved(read, args.call.outputs or asked))


def scaled(args: Arguments) -> Tally:
    """a @ b with scales, which are not counted, and a bias."""
    a, b = args.tensor(0), args.tensor(1)
    shape, flops = product(args, a, b)
    second = args.name.endswith("_v2")
    bias = args.optional(8 if second else 4)
    used = (0, 1, 2, 5, 8) if second else (0, 1, 2, 3, 4, 5)
    out = args.call.outputs or inferred(
        lambda: (Tensor(shape, args.dtype(9 if second else 6, a.dtype)),)
    )
    if bias:
        flops += computed(math.prod(shape), bias.dtype, 1)
    return Tally(flops, moved([t for at in used for t in args.tensors(at)], out))


def grouped(args: Arguments) -> Tally:
    """Matmuls side by side, of one or both sides cut where `offs` says: all of it is used."""
    a, b = args.tensor(0), args.tensor(1)
    if a.shape[-1:] != b.shape[-2:-1] or not {len(a.shape), len(b.shape)} <= {2, 3}:
        raise Unreadable("no matrices side by side")
    cut = args.optional(4 if "scaled" in args.name else 2)
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    groups = (cut.size,) if cut else ()
    both = len(a.shape) == len(b.shape)
    lead = groups if both and len(a.shape) == 2 else a.shape[:-2] if both else ()
    used = math.prod(a.shape[:-2]) if both else 1
    out = args.call.outputs or inferred(
        lambda: (Tensor((*lead, m, n), args.dtype(7 if "scaled" in args.name else 4, a.dtype)),)
    )
    flops = multiplied(used * m * n * k, a.dtype, args.tf32)
    return Tally(flops, moved(args.call.tensors, out))


def packed(args: Arguments) -> Tally:
    """a (m, k) by weights of 4 or 8 bits, whose scales (…, n) or (n, …) tell n."""
    a, weight = args.tensor(0), args.tensor(1)
    narrow = "int4" in args.name
    if len(a.shape) != 2 or not weight.shape:
        raise Unreadable("no matrices")
    n = args.tensor(3).shape[-2:-1] if narrow else weight.shape[:1]
    out = Tensor((a.shape[0], *n), a.dtype)
    flops = multiplied(out.size * a.shape[1], a.dtype, args.tf32)
    return Tally(flops, moved(args.call.tensors, args.call.outputs or (out,)))


def outer(args: Arguments) -> Tally:
    """a bᵀ of two vectors: a product each, and for `addr` a sum."""
    given = [args.tensor(at) for at in range(3 if args.name == "addr" else 2)]
    a, b = given[-2:]
    if (len(a.shape), len(b.shape)) != (1, 1):
        raise Unreadable("no vectors")
    out = Tensor((*a.shape, *b.shape), promoted(given))
    flops = computed(out.size, out.dtype, len(given) - 1)
    return Tally(flops, moved(given, args.call.outputs or (out,)))


def einsum(args: Arguments) -> Tally:
    """Two operands: a product for every combination of letters, summed where one is not kept."""
    equation, operands = (args.text(0) or "").strip("'\""), args.tensors(1)
    left, arrow, kept = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    letters = {c for c in left + kept if c != ","}
    if not arrow or len(equation) > MOST_EQUATION or len(terms) != 2 or len(operands) != 2:
        raise Unreadable("in which order more operands are multiplied is torch's affair")
    if not all(c.isalpha() for c in letters) or len(letters) > LETTERS:
        raise Unreadable("not a plain equation")
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, n in zip(term, operand.shape, strict=True):
            sizes[letter] = max(n, sizes.get(letter, 1))
    count = math.prod(sizes[letter] for letter in letters)
    out = Tensor(tuple(sizes[letter] for letter in kept), promoted(operands))
    summed = set(kept) != letters
    flops = (
        multiplied(count, out.dtype, args.tf32) if summed else computed(count, out.dtype, plain=1)
    )
    return Tally(flops, moved(operands, args.call.outputs or (out,)))


def matrices(weights: Iterable[Tensor]) -> int:
    """Elements of those that are matrices: each meets every token once."""
    return sum(weight.size for weight in weights if len(weight.shape) == 2)


def recurrent(weights: tuple[int, ...], times: int) -> Rule:
    """A recurrent layer with its weights at those positions, *times* its forward."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        used = tuple(tensor for at in weights for tensor in args.tensors(at))
        if len(x.shape) < 2 or not matrices(used):
            raise Unreadable("no sequence, or no weights")
        tokens = math.prod(x.shape[:-1])
        flops = multiplied(times * tokens * matrices(used), x.dtype, args.tf32)
        # cuDNN's weights are views of one buffer, which is passed too.
        whole = args.tensors(3) if args.name.startswith("_cudnn") else ()
        read = [t for t in args.call.tensors if t not in whole]
        return Tally(flops, moved(read, args.call.outputs))

    return rule


RULES: Rules = {
    **named("matmul", plain(0, (2, 2)), "mm _int_mm"),
    **named("matmul", plain(0, (3, 3)), "bmm"),
    **named("matmul", plain(0, (2, 1)), "mv"),
    **named("matmul", plain(0, (1, 1)), "dot vdot"),
    **named("matmul", plain(0), "matmul linalg_matmul"),
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
