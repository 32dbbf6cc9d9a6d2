"""Reductions, scans, losses, pools and resampling: so many FLOPs for each element that goes in.

A sum, a maximum is 1 an element; a norm 2 (square, sum); a variance 4 (mean, difference, square,
sum); what sorts compares as its algorithm likes, and counts none. A window of a pool counts its
elements; an average's quotient stands for the sum that its first element does not need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpuperf.model.aten import Tensor
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.shapes import axis, broadcast, reduced, spread, windows
from gpuperf.profile.cost.tally import (
    FLOATING,
    REAL,
    Rule,
    Rules,
    Tally,
    computed,
    copies,
    fresh,
    inferred,
    moved,
    named,
)


@dataclass(frozen=True)
class Reduction:
    """FLOPs and transcendentals an element; where dimensions, `keepdim` and the dtype stand.

    `needed`: from how many arguments on there are dimensions, where what stands at their place may
    be a dtype instead. `results`: their dtypes; empty: the input's.
    """

    plain: int
    special: int = 0
    dims: int = 1
    keep: int = 2
    dtype: int = -1
    needed: int = 2
    results: tuple[str, ...] = ("",)
    widens: bool = False  # integers are added up as int64


TRUTHS = Reduction(1, results=("bool",))
BOTH = ("", "int64")
SPREAD = Reduction(4, keep=3, needed=3)
REDUCTIONS = {
    "sum": Reduction(1, dtype=3, needed=3, widens=True),
    "nansum": Reduction(1, dtype=3, widens=True),
    "mean": Reduction(1, dtype=3, needed=3),
    "nanmean": Reduction(1, dtype=3),
    "prod": Reduction(1, dtype=3, needed=3, widens=True),
    **dict.fromkeys(("amax", "amin"), Reduction(1)),
    **dict.fromkeys(("argmax", "argmin"), Reduction(1, results=("int64",))),
    **dict.fromkeys(("max", "min", "median", "nanmedian"), Reduction(1, results=BOTH)),
    **dict.fromkeys(("any", "all", "_is_all_true", "_is_any_true"), TRUTHS),
    "count_nonzero": Reduction(1, keep=-1, results=("int64",)),
    **dict.fromkeys(("std", "var"), SPREAD),
    **dict.fromkeys(("std_mean", "var_mean"), Reduction(4, keep=3, needed=3, results=("", ""))),
    "norm": Reduction(2, dims=2, keep=3, dtype=4, needed=3),
    "linalg_vector_norm": Reduction(2, dims=2, keep=3, dtype=4, needed=3),
    "logsumexp": Reduction(3, 1),
    "aminmax": Reduction(2, results=("", "")),
    "kthvalue": Reduction(0, dims=2, keep=3, results=BOTH),
    "mode": Reduction(0, results=BOTH),
}
SCANS = {
    "cumsum": (1, ("",)),
    "cumprod": (1, ("",)),
    "_cummax_helper": (1, BOTH),
    "_cummin_helper": (1, BOTH),
    "cummax": (1, BOTH),
    "cummin": (1, BOTH),
    "sort": (0, BOTH),
    "argsort": (0, ("int64",)),
    "msort": (0, ("",)),
}
LOSSES = {
    # (x, target): FLOPs and transcendentals, and where the reduction stands
    "mse_loss": (2, 0, 2),
    "l1_loss": (2, 0, 2),
    "smooth_l1_loss": (5, 0, 2),
    "huber_loss": (5, 0, 2),
    "binary_cross_entropy": (6, 2, 3),
    "kl_div": (3, 1, 2),
    # (1 − t)·x + max(−x, 0) + log(1 + exp −|x|)
    "binary_cross_entropy_with_logits": (8, 2, 4),
}


def shape_of(args: Arguments, of: Reduction, x: Tensor) -> tuple[int, ...]:
    """Of the result. Raises: Unreadable where dimensions are not said."""
    listed = args.count > of.dims and (args.text(of.dims) or "").startswith("[")
    if args.count < of.needed and not listed:
        return ()
    keep = args.flag(of.keep, False) if of.keep >= 0 else False
    return reduced(x.shape, args.dims(of.dims), keep)


def reduction(of: Reduction) -> Rule:
    """One result, or values and where they were."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        if args.name in ("max", "min") and args.tensors(1):  # max.other
            return between(args, x)
        floats = x.dtype in FLOATING or x.dtype in REAL

        def infer() -> Iterable[Tensor]:
            shape = shape_of(args, of, x)
            dtype = args.dtype(of.dtype, "") if of.dtype >= 0 and args.count > of.dtype else ""
            dtype = dtype or ("int64" if of.widens and not floats else x.dtype)
            # Without dimensions max has no positions.
            results = of.results[:1] if of.results == BOTH and args.count == 1 else of.results
            return [Tensor(shape, result or dtype) for result in results]

        flops = computed(x.size, x.dtype, of.plain, of.special, sums=True)
        return Tally(flops, moved((x,), args.call.outputs or inferred(infer)))

    return rule


def between(args: Arguments, x: Tensor) -> Tally:
    """The larger, the smaller of two tensors."""
    y = args.tensor(1)
    out = Tensor(broadcast(x.shape, y.shape), x.dtype)
    flops = computed(out.size, x.dtype, 1)
    return Tally(flops, moved((x, y), args.call.outputs or (out,)), kind="elementwise")


def scan(plain: int, results: tuple[str, ...]) -> Rule:
    """As long as its input."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)

        def infer() -> Iterable[Tensor]:
            widened = "int64" if plain and x.dtype not in FLOATING | REAL.keys() else x.dtype
            dtype = args.dtype(2, widened) if args.name.startswith("cum") else x.dtype
            return [fresh(x, result or dtype) for result in results]

        flops = computed(x.size, x.dtype, plain, sums=True)
        return Tally(flops, moved((x,), args.call.outputs or inferred(infer)))

    return rule


def topk(args: Arguments) -> Tally:
    """(x, k, dim): the k largest and where they were."""
    x = args.tensor(0)

    def infer() -> Iterable[Tensor]:
        at, k = axis(args.integer(2, -1), len(x.shape)), args.integer(1)
        shape = (*x.shape[:at], k, *x.shape[at + 1 :])
        return Tensor(shape, x.dtype), Tensor(shape, "int64")

    return Tally((), moved((x,), args.call.outputs or inferred(infer)))


def loss(plain: int, special: int, how: int) -> Rule:
    """Of x and its target, summed unless the reduction is 0."""

    def rule(args: Arguments) -> Tally:
        given = [t for at in range(how) for t in args.tensors(at)]
        shape = broadcast(*(t.shape for t in given))
        x = args.tensor(0)
        summed = args.integer(how, 1) != 0
        out = Tensor(() if summed else shape, x.dtype)
        flops = computed(math.prod(shape), x.dtype, plain + summed, special, sums=summed)
        return Tally(flops, moved(given, args.call.outputs or (out,)))

    return rule


def picked(args: Arguments) -> Tally:
    """`nll_loss_forward` (x, target, weight, reduction, …): of x only each target's element."""
    x, target = args.tensor(0), args.tensor(1)
    weights = args.tensors(2)
    read = (copies(x, target.size), target, *(copies(w, target.size) for w in weights))

    def infer() -> Iterable[Tensor]:
        one = Tensor((), x.dtype)
        return (one if args.integer(3) else Tensor(target.shape, x.dtype)), one

    flops = computed(target.size, x.dtype, 1 + len(weights), sums=True)
    return Tally(flops, moved(read, args.call.outputs or inferred(infer)))


def picked_backward(args: Arguments) -> Tally:
    """(dy, x, target, weight, reduction, …): x itself is not needed, its gradient is all zeros but
    for each target's element."""
    dy, x, target = (args.tensor(at) for at in range(3))
    weights = [copies(w, target.size) for w in args.tensors(3)]
    flops = computed(target.size, x.dtype, 1 + len(weights))
    read = (dy, target, *weights, *args.tensors(6))
    return Tally(flops, moved(read, args.call.outputs or (fresh(x),)))


def entropy(args: Arguments) -> Tally:
    """`cross_entropy_loss` (x, target, weight, reduction) in one: a log softmax and a sum."""
    x, target = args.tensor(0), args.tensor(1)
    flops = computed(x.size, x.dtype, 4, 1, sums=True)
    out = inferred(lambda: (Tensor(() if args.integer(3, 1) else target.shape, x.dtype),))
    return Tally(flops, moved((x, target, *args.tensors(2)), args.call.outputs or out))


def axes_of(name: str) -> int:
    """How many: the digit in `max_pool2d`."""
    return next(int(c) for c in name if c in "123")


def pooled(args: Arguments, first: int) -> tuple[int, tuple[int, ...], int]:
    """Elements of a window, the places of windows, and how many axes. Raises: Unreadable."""
    axes = axes_of(args.name)
    x = args.tensor(1 if "backward" in args.name else 0)
    kernel = spread(args.integers(first), axes)
    stride = spread(args.integers(first + 1, ()) or kernel, axes)
    padding = spread(args.integers(first + 2, (0,)), axes)
    largest = "max" in args.name
    dilation = spread(args.integers(first + 3, (1,)) if largest else (1,), axes)
    ceil = args.flag(first + (4 if largest else 3), False)
    if len(x.shape) not in (axes + 1, axes + 2):
        raise Unreadable("no pool is of this rank")
    place = tuple(
        windows(n, k, s, p, d, ceil)
        for n, k, s, p, d in zip(x.shape[-axes:], kernel, stride, padding, dilation, strict=True)
    )
    return math.prod(kernel), place, axes


def pool(args: Arguments) -> Tally:
    """(x, kernel, stride, padding, …): a window's largest and where it was, or its average."""
    x = args.tensor(0)
    each, place, axes = pooled(args, 1)
    out = Tensor((*x.shape[:-axes], *place), x.dtype)
    made = (out, fresh(out, "int64")) if args.name.endswith("_indices") else (out,)
    flops = computed(out.size, x.dtype, each)
    return Tally(flops, moved((x,), args.call.outputs or made))


def pool_backward(args: Arguments) -> Tally:
    """(dy, x, …): what each window gives back; x itself is not needed."""
    dy, x = args.tensor(0), args.tensor(1)
    if "max" in args.name:
        at = 2 if args.name.startswith("adaptive") else 7
        each, read = 1, [dy, *args.tensors(at)]
    else:
        each, read = math.prod(spread(args.integers(2), axes_of(args.name))), [dy]
    flops = computed(dy.size, dy.dtype, each)
    return Tally(flops, moved(read, args.call.outputs or (fresh(x),)))


def overlapping(small: int, large: int) -> int:
    """Elements of all windows ⌊i·large/small⌋ … ⌈(i+1)·large/small⌉ of an adaptive pool's axis."""
    return small + large - math.gcd(small, large)


def adaptive(args: Arguments) -> Tally:
    """(x, size of the result): windows that are as even as can be, and may overlap."""
    x, axes = args.tensor(0), axes_of(args.name)
    size = spread(args.integers(1), axes)
    lead = x.shape[:-axes]
    out = Tensor((*lead, *size), x.dtype)
    made = (out, fresh(out, "int64")) if "max" in args.name else (out,)
    each = math.prod(overlapping(s, n) for s, n in zip(size, x.shape[-axes:], strict=True))
    flops = computed(math.prod(lead) * each, x.dtype, 1)
    return Tally(flops, moved((x,), args.call.outputs or made))


def adaptive_backward(args: Arguments) -> Tally:
    """(dy, x): its windows again."""
    dy, x, axes = args.tensor(0), args.tensor(1), axes_of(args.name)
    pairs = zip(dy.shape[-axes:], x.shape[-axes:], strict=True)
    each = math.prod(overlapping(s, n) for s, n in pairs)
    flops = computed(math.prod(x.shape[:-axes]) * each, x.dtype, 1)
    return Tally(flops, moved((dy,), args.call.outputs or (fresh(x),)))


def resampled(taps: int, backward: bool) -> Rule:
    """(x, size of the result, …), or (dy, its size, size of x, …), each element of the result made
    of *taps*: a product and a sum for each."""

    def rule(args: Arguments) -> Tally:
        given, axes = args.tensor(0), axes_of(args.name)

        def infer() -> Iterable[Tensor]:
            if backward:
                return (Tensor(args.integers(2), given.dtype),)
            return (Tensor((*given.shape[:-axes], *args.integers(1)), given.dtype),)

        out = args.call.outputs[:1] or inferred(infer)
        if not out:
            raise Unreadable("how much is made of it?")
        # Of n products n − 1 sums; backward each is added to what is there, and so is `nearest`.
        each = max(2 * taps, 1) if backward else max(2 * taps - 1, 0)
        flops = computed(given.size if backward else out[0].size, given.dtype, each)
        return Tally(flops, moved((given,), out), kind=None if taps else "copy")

    return rule


POOLS = """max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices
    avg_pool1d avg_pool2d avg_pool3d mkldnn_max_pool2d mkldnn_max_pool3d"""
POOLS_BACK = """max_pool2d_with_indices_backward max_pool3d_with_indices_backward
    avg_pool2d_backward avg_pool3d_backward mkldnn_max_pool2d_backward
    adaptive_max_pool2d_backward adaptive_max_pool3d_backward"""
ADAPTIVE = """adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d
    _adaptive_avg_pool3d mkldnn_adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d"""
ADAPTIVE_BACK = """_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward
    adaptive_avg_pool3d_backward mkldnn_adaptive_avg_pool2d_backward"""
RESAMPLED = {
    0: """upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
        _upsample_nearest_exact2d _upsample_nearest_exact3d""",
    2: "upsample_linear1d",
    4: "upsample_bilinear2d _upsample_bilinear2d_aa",
    8: "upsample_trilinear3d",
    16: "upsample_bicubic2d _upsample_bicubic2d_aa",
}
RULES: Rules = {
    **{name: ("reduction", reduction(of)) for name, of in REDUCTIONS.items()},
    **{name: ("reduction", scan(*of)) for name, of in SCANS.items()},
    **{name: ("reduction", loss(*of)) for name, of in LOSSES.items()},
    **named("reduction", topk, "topk"),
    **named("reduction", picked, "nll_loss_forward nll_loss2d_forward"),
    **named("reduction", picked_backward, "nll_loss_backward nll_loss2d_backward"),
    **named("reduction", entropy, "cross_entropy_loss"),
    **named("reduction", pool, POOLS),
    **named("reduction", pool_backward, POOLS_BACK),
    **named("reduction", adaptive, ADAPTIVE),
    **named("reduction", adaptive_backward, ADAPTIVE_BACK),
    **{
        name: ("elementwise", resampled(taps, backward=False))
        for taps, names in RESAMPLED.items()
        for name in names.split()
    },
    **{
        f"{name}_backward": ("elementwise", resampled(taps, backward=True))
        for taps, names in RESAMPLED.items()
        for name in names.split()
    },
}
