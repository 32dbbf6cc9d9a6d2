"""Count the bytes of copies, conversions, fills, random numbers and views, which have no FLOPs.

A copy reads the elements that go into the result, and writes the result. A fill and a random number
are only written. A view moves nothing. `reshape` and `to` may be a view or a copy: they count as a
view if the result lies in the storage of the input, and if the result was not recorded, since a
copy then appears as an operator of its own.
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
    elements,
    like,
    memory,
    moved,
    named,
    results,
    tally,
)

# dtype, layout, device and pin_memory are the last arguments of every operator that makes a tensor.
OPTIONS = 4


def nothing(args: Arguments) -> Tally:
    """Return no FLOPs and bytes, for an operator that only changes shapes and strides."""
    return Tally()


def view_or_copy(args: Arguments) -> Tally:
    """Return the cost of a copy if all results lie in new storages, else a view."""
    inputs = {tensor.storage for tensor in args.call.tensors} - {0}
    outputs = args.call.outputs
    if not inputs or any(not t.storage or t.storage in inputs for t in outputs) or not outputs:
        return Tally()
    return Tally((), moved(args.tensors(0), outputs), kind="copy")


def copy(infer: Callable[[Arguments, Tensor], Tensor] | None = None) -> Rule:
    """Return the rule for a copy of argument 0, or of those of its elements that the result has.

    *infer* returns the result, if it was not recorded, from the arguments and argument 0.
    """

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        out = results(args, (lambda: (infer(args, x),)) if infer else ())
        needed = sum(tensor.size for tensor in out)
        if not out:
            return Tally()
        return Tally((), moved((elements(x, needed) if needed < x.distinct else x,), out))

    return rule


def same(args: Arguments, x: Tensor) -> Tensor:
    """Return the result of a copy of x with the same shape, up to the order of axes."""
    return like(x)


def converted(args: Arguments, x: Tensor) -> Tensor:
    """Return the result of `_to_copy` (x, dtype, …)."""
    return like(x, args.dtype(1, x.dtype))


def repeated(args: Arguments, x: Tensor) -> Tensor:
    """Return the result of `repeat` (x, how often to repeat each axis), as one axis."""
    return Tensor((x.size * math.prod(args.integers(1)),), x.dtype)


def padded(args: Arguments, x: Tensor) -> Tensor:
    """Return the result of a padding (x, [before, after] of each axis, the last axis first)."""
    pads = args.integers(1)
    shape = list(x.shape)
    if len(pads) % 2 or len(pads) > 2 * len(shape):
        raise Unreadable("the padding has another number of axes")
    for at in range(len(pads) // 2):
        shape[-1 - at] += pads[2 * at] + pads[2 * at + 1]
    return Tensor(tuple(shape), x.dtype)


def placed(args: Arguments, x: Tensor) -> Tensor:
    """Return the result of `slice_backward` (dy, shape of x, …): zeros, with dy in a slice."""
    return Tensor(args.integers(1), x.dtype)


def concatenated(args: Arguments) -> Tally:
    """Return the cost of `cat` and `stack`: all tensors of a list are copied."""
    parts = args.tensors(0)
    if not parts:
        raise Unreadable("the list is empty")
    out = Tensor((sum(t.size for t in parts),), promoted(parts))
    return tally(args, (), parts, (out,))


def overwritten(args: Arguments) -> Tally:
    """Count `copy_` (target, source), and `copy`, which returns a tensor like the target."""
    target, source = args.first(2)
    broadcast(target.shape, source.shape)
    return tally(args, (), (source,), (in_place(args, target),))


def in_place(args: Arguments, x: Tensor) -> Tensor:
    """Return the result of an operator that writes x, or of its form that writes a new tensor."""
    return x if args.in_place else like(x)


def inserted(args: Arguments) -> Tally:
    """Count `slice_scatter` (x, part, …), which returns x with a slice replaced by *part*."""
    x, part = args.first(2)
    rest = elements(x, max(0, x.distinct - part.size))
    return tally(args, (), (rest, part), (like(x),))


def filled(args: Arguments) -> Tally:
    """Count `fill_`, `uniform_` or the like, which write argument 0 and do not read it."""
    return tally(args, (), (), (in_place(args, args.tensor(0)),))


def option(args: Arguments, options: int, others: int, default: str) -> str:
    """Return the dtype among the *options* that end the arguments, after at most *others*.

    Raises: Unreadable if only some options were passed: their positions are then unknown.
    """
    at = args.count - options
    if at <= 0 and args.count > others and not args.tensors(args.count - 1):
        raise Unreadable("the positions of the options are unknown")
    return args.dtype(at, default) if at > 0 else default


def filled_like(others: int) -> Rule:
    """Return the rule for `zeros_like` (x, …, dtype, layout, device, pin_memory, memory_format),
    with at most *others* arguments before dtype."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        return tally(args, (), (), lambda: (like(x, option(args, OPTIONS + 1, others, x.dtype)),))

    return rule


def made(size: Callable[[Arguments], tuple[int, ...]], default: str, others: int) -> Rule:
    """Return the rule for an operator that writes a new tensor of the shape *size*.

    At most *others* arguments come before its options; without a dtype it is *default*, or, if that
    is empty, the dtype of argument 0.
    """

    def rule(args: Arguments) -> Tally:
        def infer() -> Iterable[Tensor]:
            dtype = default or args.tensor(0).dtype
            return (Tensor(size(args), option(args, OPTIONS, others, dtype)),)

        return tally(args, (), (), infer)

    return rule


def size_at(at: int) -> Callable[[Arguments], tuple[int, ...]]:
    """Return a function that reads a shape from argument *at*."""
    return lambda args: args.integers(at)


def first_list(args: Arguments) -> tuple[int, ...]:
    """Return the shape in the arguments of `randint`, (high, shape, …) or (low, high, shape, …)."""
    at = next((i for i in range(3) if (args.text(i) or "").startswith("[")), 0)
    return args.integers(at)


def square(args: Arguments) -> tuple[int, ...]:
    """Return the shape of `eye` (n, …) or (n, m, …)."""
    n = args.integer(0)
    return (n, args.integer(1)) if args.count - OPTIONS == 2 else (n, n)


def counted(args: Arguments) -> tuple[int, ...]:
    """Return the shape of `arange` (end), (begin, end) or (begin, end, step).

    The options or `out` follow these arguments.
    """
    options = 1 if args.tensors(args.count - 1) else OPTIONS
    given = args.count - options if args.count > options else args.count
    texts = [args.text(at) or "" for at in range(min(given, 3))]
    if not texts or not all(NUMBER.fullmatch(text) for text in texts):
        raise Unreadable("the range is not of numbers")
    numbers = [float(text) for text in texts]
    begin, end = (0.0, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
    step = numbers[2] if len(numbers) == 3 else 1.0
    return (max(0, math.ceil((end - begin) / step)),)


def arange(args: Arguments) -> Tally:
    """Count `arange`, of int64 if all its numbers are whole, or of the dtype of its `out`."""
    if not args.count:
        raise Unreadable("the range was not recorded")
    out = args.tensors(args.count - 1)
    whole = not any(c in (args.text(at) or "") for at in range(min(args.count, 3)) for c in ".e")
    default = out[0].dtype if out else "int64" if whole else "fp32"
    return made(counted, default, 3)(args)


def drawn(args: Arguments) -> Tally:
    """Return the cost of `bernoulli` (p) and `multinomial` (p, count), which read probabilities."""
    x = args.tensor(0)

    def infer() -> Iterable[Tensor]:
        if args.name == "bernoulli":
            return (like(x),)
        return (Tensor((*x.shape[:-1], args.integer(1)), "int64"),)

    if args.in_place:
        return tally(args, (), args.tensors(1), (x,))
    return tally(args, (), (x,), infer)


def first_element(args: Arguments) -> Tally:
    """Return the cost of `item`, which reads one element."""
    return Tally((), Bytes(memory((elements(args.tensor(0), 1),)), 0))


def compared(args: Arguments) -> Tally:
    """Return the cost of `equal`, which reads two tensors."""
    return Tally((), moved(args.first(2), ()))


def normal(args: Arguments) -> Tally:
    """Count `normal` (mean, deviation, size, generator, options), of numbers or tensors."""
    if args.in_place or args.tensors(0, 1):
        given = () if args.in_place else args.tensors(0, 1)
        x = args.optional(0) or args.tensor(1)
        return tally(args, (), given, (in_place(args, x),))
    return made(size_at(2), "fp32", 3)(args)


def unpadded(args: Arguments) -> Tally:
    """Count the backward (dy, x, padding) of a padding by elements of x: it adds gradients up."""
    dy, x = args.first(2)
    return tally(args, computed(max(0, dy.size - x.size), dy.dtype, 1), (dy,), (like(x),))


def overlaid(args: Arguments) -> Tally:
    """Count `col2im` (x (…, channels·kernel, places), size of the result, kernel, …)."""
    x = args.tensor(0)

    def infer() -> Iterable[Tensor]:
        kernel = math.prod(spread(args.integers(2), 2))
        if len(x.shape) < 2 or kernel < 1:
            raise Unreadable("x has no columns")
        channels = math.prod(x.shape[:-1]) // kernel
        return (Tensor((channels, *args.integers(1)), x.dtype),)

    return tally(args, computed(x.size, x.dtype, 1), (x,), infer)


def columns(args: Arguments) -> Tally:
    """Return the cost of `im2col` (x, kernel, dilation, padding, stride)."""
    x = args.tensor(0)

    def infer() -> Iterable[Tensor]:
        kernel, dilation, padding, stride = (spread(args.integers(at), 2) for at in range(1, 5))
        places = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, d, p, s in zip(x.shape[-2:], kernel, dilation, padding, stride, strict=True)
        ]
        channels = math.prod(x.shape[:-2]) * math.prod(kernel)
        return (Tensor((channels, math.prod(places)), x.dtype),)

    return tally(args, (), (x,), infer)


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
VIEWS_OR_COPIES = """reshape contiguous to flatten ravel reshape_as type_as resolve_conj resolve_neg
    dropout feature_dropout alpha_dropout cpu cuda _pin_memory pin_memory"""
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
CONCATENATIONS = "cat stack concat concatenate _stack hstack vstack dstack column_stack"
RANDOM = """uniform random exponential geometric cauchy log_normal _philox_normal
    _philox_uniform"""

RULES: Rules = {
    **named("view", nothing, VIEWS),
    **named("view", view_or_copy, VIEWS_OR_COPIES),
    **named("copy", copy(same), SAME),
    **named("copy", copy(), CUT),
    **named("copy", copy(converted), "_to_copy"),
    **named("copy", copy(repeated), "repeat tile"),
    **named("copy", copy(padded), PADS),
    **named("copy", copy(placed), "select_backward slice_backward diagonal_backward"),
    **named("copy", concatenated, CONCATENATIONS),
    **named("copy", overwritten, "copy"),
    **named("copy", inserted, "slice_scatter select_scatter diagonal_scatter as_strided_scatter"),
    **named("copy", filled, "fill zero"),
    **named("copy", filled_like(1), "zeros_like ones_like"),
    **named("copy", filled_like(2), "full_like"),
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
    **named("random", filled_like(1), "rand_like randn_like"),
    **named("random", filled_like(3), "randint_like"),
    **named("random", made(size_at(0), "fp32", 1), "rand randn"),
    **named("random", made(first_list, "int64", 3), "randint"),
    **named("random", made(size_at(0), "int64", 1), "randperm"),
    **named("random", filled, RANDOM),
    **named("random", normal, "normal"),
    **named("random", drawn, "bernoulli multinomial"),
}
