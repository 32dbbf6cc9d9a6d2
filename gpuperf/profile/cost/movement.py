"""Copies, conversions, fills, random numbers, and views: bytes without FLOPs, or not even bytes.

A copy reads what of its input goes into the result, and writes the result. A fill and a random
number are written only. A view moves nothing; what may be a view or a copy (`reshape`, `to`) is one
where its result lies in its input's storage, and where nobody saw a result: a copy shows as an
operator of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from gpuperf.model.aten import Tensor
from gpuperf.model.cost import Bytes
from gpuperf.profile.cost.arguments import NUMBER, Arguments, Unreadable
from gpuperf.profile.cost.shapes import broadcast, promoted, spread
from gpuperf.profile.cost.tally import (
    Rule,
    Rules,
    Tally,
    computed,
    copies,
    fresh,
    inferred,
    memory,
    moved,
    named,
)

# dtype, layout, device, pin_memory end the arguments of whatever makes a tensor.
OPTIONS = 4


def nothing(args: Arguments) -> Tally:
    """Shapes and strides only."""
    return Tally()


def perhaps(args: Arguments) -> Tally:
    """A view where its result lies in its input's storage."""
    inputs = {tensor.storage for tensor in args.call.tensors} - {0}
    outputs = args.call.outputs
    if not inputs or any(not t.storage or t.storage in inputs for t in outputs) or not outputs:
        return Tally()
    return Tally((), moved(args.tensors(0), outputs), kind="copy")


def copied(sources: Iterable[Tensor], results: Iterable[Tensor]) -> Bytes:
    """*results* made of elements of *sources*: no more is read than there is, or is needed."""
    read, results = list(sources), list(results)
    needed = sum(tensor.size for tensor in results)
    if len(read) == 1 and needed < read[0].distinct:
        read = [copies(read[0], needed)]
    return moved(read, results)


def copy(infer: Callable[[Arguments, Tensor], Tensor] | None = None) -> Rule:
    """A copy of argument 0, or of what of it the result holds; *infer* says which."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        make = infer
        results = args.call.outputs or (inferred(lambda: (make(args, x),)) if make else ())
        return Tally((), copied((x,) if results else (), results))

    return rule


def same(args: Arguments, x: Tensor) -> Tensor:
    """As large as its input."""
    return fresh(x)


def converted(args: Arguments, x: Tensor) -> Tensor:
    """(x, dtype, …)"""
    return fresh(x, args.dtype(1, x.dtype))


def repeated(args: Arguments, x: Tensor) -> Tensor:
    """(x, repeats of each axis, which may be more)."""
    return Tensor((x.size * math.prod(args.integers(1)),), x.dtype)


def padded(args: Arguments, x: Tensor) -> Tensor:
    """(x, [before, after] of each axis from the last)."""
    pads = args.integers(1)
    shape = list(x.shape)
    if len(pads) % 2 or len(pads) > 2 * len(shape):
        raise Unreadable("no such padding")
    for at in range(len(pads) // 2):
        shape[-1 - at] += pads[2 * at] + pads[2 * at + 1]
    return Tensor(tuple(shape), x.dtype)


def placed(args: Arguments, x: Tensor) -> Tensor:
    """(dy, size of x, …): zeros with dy somewhere among them."""
    return Tensor(args.integers(1), x.dtype)


def joined(args: Arguments) -> Tally:
    """`cat`, `stack`: all of a list, one after another."""
    parts = args.tensors(0)
    if not parts:
        raise Unreadable("nothing to join")
    made = Tensor((sum(t.size for t in parts),), promoted(parts))
    return Tally((), moved(parts, args.call.outputs or (made,)))


def overwritten(args: Arguments) -> Tally:
    """`copy_` (to, from)."""
    to, source = args.tensor(0), args.tensor(1)
    if not args.in_place:  # `copy` makes a tensor like the first
        to = fresh(to, to.dtype)
    broadcast(to.shape, source.shape)
    return Tally((), moved((source,), args.call.outputs or (to,)))


def inserted(args: Arguments) -> Tally:
    """`slice_scatter` (x, part, …): a copy of x, but for a part."""
    x, part = args.tensor(0), args.tensor(1)
    rest = copies(x, max(0, x.distinct - part.size))
    return Tally((), moved((rest, part), args.call.outputs or (fresh(x),)))


def filled(args: Arguments) -> Tally:
    """Argument 0 written, whatever it was."""
    x = args.tensor(0)
    return Tally((), moved((), args.call.outputs or (x if args.in_place else fresh(x),)))


def option(args: Arguments, options: int, others: int, default: str) -> str:
    """The dtype among the *options* that end the arguments, after at most *others*.

    Raises: Unreadable where some options were passed, and nobody knows which.
    """
    at = args.count - options
    if at <= 0 and args.count > others and not args.tensors(args.count - 1):
        raise Unreadable("which of its options was passed?")
    return args.dtype(at, default) if at > 0 else default


def like(others: int) -> Rule:
    """`zeros_like` (x, …, dtype, layout, device, pin_memory, memory_format)."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        made = inferred(lambda: (fresh(x, option(args, OPTIONS + 1, others, x.dtype)),))
        return Tally((), moved((), args.call.outputs or made))

    return rule


def made(size: Callable[[Arguments], tuple[int, ...]], default: str, others: int) -> Rule:
    """A new tensor of a size that numbers say, with so many *others* before its options."""

    def rule(args: Arguments) -> Tally:
        def infer() -> Iterable[Tensor]:
            dtype = default or args.tensor(0).dtype
            return (Tensor(size(args), option(args, OPTIONS, others, dtype)),)

        return Tally((), moved((), args.call.outputs or inferred(infer)))

    return rule


def size_at(at: int) -> Callable[[Arguments], tuple[int, ...]]:
    """The list of sizes, at that position."""
    return lambda args: args.integers(at)


def first_list(args: Arguments) -> tuple[int, ...]:
    """(high, size, …) or (low, high, size, …)."""
    at = next((i for i in range(3) if (args.text(i) or "").startswith("[")), 0)
    return args.integers(at)


def square(args: Arguments) -> tuple[int, ...]:
    """`eye` (n, …) or (n, m, …)."""
    n = args.integer(0)
    return (n, args.integer(1)) if args.count - OPTIONS == 2 else (n, n)


def counted(args: Arguments) -> tuple[int, ...]:
    """`arange` (end), (begin, end), (begin, end, step): before the options, or before `out`."""
    options = 1 if args.tensors(args.count - 1) else OPTIONS
    given = args.count - options if args.count > options else args.count
    texts = [args.text(at) or "" for at in range(min(given, 3))]
    if not texts or not all(NUMBER.fullmatch(text) for text in texts):
        raise Unreadable("no range of numbers")
    numbers = [float(text) for text in texts]
    begin, end = (0.0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
    step = numbers[2] if len(numbers) == 3 else 1.0
    return (max(0, math.ceil((end - begin) / step)),)


def arange(args: Arguments) -> Tally:
    """int64 where all its numbers are whole, or what its `out` is."""
    shown = args.tensors(args.count - 1)
    whole = not any(c in (args.text(at) or "") for at in range(min(args.count, 3)) for c in ".e")
    default = shown[0].dtype if shown else "int64" if whole else "fp32"
    return made(counted, default, 3)(args)


def drawn(args: Arguments) -> Tally:
    """`bernoulli` (p), `multinomial` (p, how many): numbers for the odds that are read."""
    x = args.tensor(0)

    def infer() -> Iterable[Tensor]:
        if args.name == "bernoulli":
            return (fresh(x),)
        return (Tensor((*x.shape[:-1], args.integer(1)), "int64"),)

    if args.in_place:
        return Tally((), moved(args.tensors(1), args.call.outputs or (x,)))
    return Tally((), moved((x,), args.call.outputs or inferred(infer)))


def first_element(args: Arguments) -> Tally:
    """`item`: one element, for the host."""
    return Tally((), Bytes(memory((copies(args.tensor(0), 1),)), 0))


def compared(args: Arguments) -> Tally:
    """`equal` of two tensors: both are read."""
    return Tally((), moved((args.tensor(0), args.tensor(1)), ()))


def normal(args: Arguments) -> Tally:
    """(mean, deviation, size, generator, options), or with tensors of either, or in place."""
    if args.in_place or args.tensors(0) or args.tensors(1):
        given = () if args.in_place else (*args.tensors(0), *args.tensors(1))
        x = args.optional(0) or args.tensor(1)
        return Tally((), moved(given, args.call.outputs or (x if args.in_place else fresh(x),)))
    return made(size_at(2), "fp32", 3)(args)


def unpadded(args: Arguments) -> Tally:
    """(dy, x, padding): what was laid around x twice is added up."""
    dy, x = args.tensor(0), args.tensor(1)
    flops = computed(max(0, dy.size - x.size), dy.dtype, 1)
    return Tally(flops, moved((dy,), args.call.outputs or (fresh(x),)))


def overlaid(args: Arguments) -> Tally:
    """`col2im` (x (…, channels·kernel, places), size of the result, kernel, …)."""
    x = args.tensor(0)

    def infer() -> Iterable[Tensor]:
        kernel = math.prod(spread(args.integers(2), 2))
        if len(x.shape) < 2 or kernel < 1:
            raise Unreadable("no columns")
        channels = math.prod(x.shape[:-1]) // kernel
        return (Tensor((channels, *args.integers(1)), x.dtype),)

    flops = computed(x.size, x.dtype, 1)
    return Tally(flops, moved((x,), args.call.outputs or inferred(infer)))


def columns(args: Arguments) -> Tally:
    """`im2col` (x, kernel, dilation, padding, stride)."""
    x = args.tensor(0)

    def infer() -> Iterable[Tensor]:
        kernel, dilation, padding, stride = (spread(args.integers(at), 2) for at in range(1, 5))
        places = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, d, p, s in zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
        ]
        channels = math.prod(x.shape[:-2]) * math.prod(kernel)
        return (Tensor((channels, math.prod(places)), x.dtype),)

    return Tally((), moved((x,), args.call.outputs or inferred(infer)))


VIEWS = """view t transpose permute expand slice select squeeze unsqueeze detach alias as_strided
    _unsafe_view unbind chunk split split_with_sizes tensor_split unsafe_split unsafe_chunk
    unsafe_split_with_sizes hsplit vsplit dsplit narrow diagonal swapaxes swapdims movedim moveaxis
    unfold unflatten expand_as view_as view_as_real view_as_complex real imag mT mH numpy_T
    matrix_H adjoint _reshape_alias lift lift_fresh _conj _neg_view broadcast_to requires_grad
    set resize resize_as size stride numel dim sym_size sym_numel sym_stride sym_storage_offset
    is_same_size is_pinned result_type empty empty_like empty_strided empty_permuted new_empty
    new_empty_strided record_stream output_nr retain_grad _version is_floating_point is_complex
    _assert_tensor_metadata _assert_async _fused_sdp_choice _has_compatible_shallow_copy_type conj
    slice_inverse data broadcast_tensors meshgrid values indices _values _indices is_contiguous
    storage_offset cudnn_is_acceptable _debug_has_internal_overlap"""
PERHAPS = """reshape contiguous to flatten ravel reshape_as type_as resolve_conj resolve_neg dropout
    feature_dropout alpha_dropout cpu cuda _pin_memory pin_memory"""
SAME = """clone roll flip fliplr flipud rot90 tril triu alias_copy detach_copy t_copy permute_copy
    transpose_copy view_copy unsqueeze_copy squeeze_copy _reshape_alias_copy _conj_copy
    _neg_view_copy lift_fresh_copy pixel_shuffle pixel_unshuffle channel_shuffle
    native_channel_shuffle"""
CUT = """expand_copy select_copy slice_copy split_copy split_with_sizes_copy unbind_copy
    as_strided_copy diagonal_copy unfold_copy narrow_copy diag diag_embed repeat_interleave
    block_diag"""
PADS = """constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d"""
UNPADS = """reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward"""
RANDOM = """uniform random exponential geometric cauchy log_normal _philox_normal
    _philox_uniform"""

RULES: Rules = {
    **named("view", nothing, VIEWS),
    **named("view", perhaps, PERHAPS),
    **named("copy", copy(same), SAME),
    **named("copy", copy(), CUT),
    **named("copy", copy(converted), "_to_copy"),
    **named("copy", copy(repeated), "repeat tile"),
    **named("copy", copy(padded), PADS),
    **named("copy", copy(placed), "select_backward slice_backward diagonal_backward"),
    **named(
        "copy", joined, "cat stack concat concatenate _stack hstack vstack dstack column_stack"
    ),
    **named("copy", overwritten, "copy"),
    **named("copy", inserted, "slice_scatter select_scatter diagonal_scatter as_strided_scatter"),
    **named("copy", filled, "fill zero"),
    **named("copy", like(1), "zeros_like ones_like"),
    **named("copy", like(2), "full_like"),
    **named("copy", made(size_at(0), "fp32", 1), "zeros ones"),
    **named("copy", made(size_at(0), "fp32", 2), "full"),
    **named("copy", made(size_at(1), "", 2), "new_zeros new_ones"),
    **named("copy", made(size_at(1), "", 3), "new_full"),
    **named("copy", made(square, "fp32", 2), "eye"),
    **named("copy", made(size_at(2), "fp32", 3), "linspace logspace"),
    **named("copy", arange, "arange"),
    **named("copy", made(lambda args: (), "fp32", 1), "scalar_tensor"),
    **named("copy", first_element, "item _local_scalar_dense is_nonzero"),
    **named("copy", compared, "equal"),
    **named("copy", columns, "im2col"),
    **named("copy", overlaid, "col2im"),
    **named("copy", unpadded, UNPADS),
    **named("random", like(1), "rand_like randn_like"),
    **named("random", like(3), "randint_like"),
    **named("random", made(size_at(0), "fp32", 1), "rand randn"),
    **named("random", made(first_list, "int64", 3), "randint"),
    **named("random", made(size_at(0), "int64", 1), "randperm"),
    **named("random", filled, RANDOM),
    **named("random", normal, "normal"),
    **named("random", drawn, "bernoulli multinomial"),
}
