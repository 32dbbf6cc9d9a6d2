"""Count reductions, scans, losses, pools and resampling, mostly by FLOPs for each input element.

A sum or a maximum is 1 FLOP an element; a norm 2 (square, sum); a variance 4 (mean, difference,
square, sum); sorting has none, since its comparisons depend on the algorithm. A pool has a FLOP for
each element of a window; an average has one sum less than elements, and a quotient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpuperf.model.aten import Tensor
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.shapes import axis, common_shape, reduced, replaced, spread, windows
from gpuperf.profile.cost.tally import (
    FLOATING,
    REAL,
    Rule,
    Rules,
    Tally,
    computed,
    elements,
    like,
    moved,
    named,
    results,
    tally,
)


@dataclass(frozen=True)
class Reduction:
    """FLOPs and transcendentals for each element of the input of a reduction, and the positions of
    its arguments for dimensions, `keepdim` and dtype; −1 if the operator has none.

    A call with fewer than *needed* arguments has dimensions only if they are a list: there may be a
    dtype at their position. *results* are dtypes; empty: the input's.
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
    """Return the shape of a reduction of x. Raises: Unreadable for unknown dimensions."""
    listed = args.count > of.dims and (args.text(of.dims) or "").startswith("[")
    if args.count < of.needed and not listed:
        return ()
    keep = args.flag(of.keep, False) if of.keep >= 0 else False
    return reduced(x.shape, args.dims(of.dims), keep)


def reduction(of: Reduction) -> Rule:
    """Return the rule for a reduction to one result, or to values and their positions."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        if args.name in ("max", "min") and args.tensors(1):  # max.other
            return between(args)
        floats = x.dtype in FLOATING or x.dtype in REAL

        def infer() -> Iterable[Tensor]:
            shape = shape_of(args, of, x)
            dtype = args.dtype(of.dtype, "") if of.dtype >= 0 and args.count > of.dtype else ""
            dtype = dtype or ("int64" if of.widens and not floats else x.dtype)
            # Without dimensions max has no positions.
            dtypes = of.results[:1] if of.results == BOTH and args.count == 1 else of.results
            return [Tensor(shape, result or dtype) for result in dtypes]

        flops = computed(x.size, x.dtype, of.plain, of.special, sums=True)
        return tally(args, flops, (x,), infer)

    return rule


def between(args: Arguments) -> Tally:
    """Return the cost of `max` or `min` of two tensors, element by element."""
    x, y = args.first(2)
    out = Tensor(common_shape((x, y)), x.dtype)
    flops = computed(out.size, x.dtype, 1)
    return replace(tally(args, flops, (x, y), (out,)), kind="elementwise")


def scan(plain: int, dtypes: tuple[str, ...]) -> Rule:
    """Return the rule for a scan or a sort, with *plain* FLOPs an element.

    Its results have the shape of its input and *dtypes* (empty: the input's).
    """

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)

        def infer() -> Iterable[Tensor]:
            widened = "int64" if plain and x.dtype not in FLOATING | REAL.keys() else x.dtype
            dtype = args.dtype(2, widened) if args.name.startswith("cum") else x.dtype
            return [like(x, result or dtype) for result in dtypes]

        return tally(args, computed(x.size, x.dtype, plain, sums=True), (x,), infer)

    return rule


def topk(args: Arguments) -> Tally:
    """Count `topk` (x, k, dim), which returns the k largest elements and their positions."""
    x = args.tensor(0)

    def infer() -> Iterable[Tensor]:
        at, k = axis(args.integer(2, -1), len(x.shape)), args.integer(1)
        shape = replaced(x.shape, at, k)
        return Tensor(shape, x.dtype), Tensor(shape, "int64")

    return tally(args, (), (x,), infer)


def loss(plain: int, special: int, how: int) -> Rule:
    """Return the rule for a loss of x and its target, added up unless argument *how* is 0."""

    def rule(args: Arguments) -> Tally:
        given = args.tensors(*range(how))
        shape = common_shape(given)
        x = args.tensor(0)
        summed = args.integer(how, 1) != 0
        out = Tensor(() if summed else shape, x.dtype)
        flops = computed(math.prod(shape), x.dtype, plain + summed, special, sums=summed)
        return tally(args, flops, given, (out,))

    return rule


def picked(args: Arguments) -> Tally:
    """Count `nll_loss_forward` (x, target, weight, …), which reads an element of x per target."""
    x, target = args.first(2)
    weights = args.tensors(2)

    def infer() -> Iterable[Tensor]:
        scalar = Tensor((), x.dtype)
        return (scalar if args.integer(3) else Tensor(target.shape, x.dtype)), scalar

    flops = computed(target.size, x.dtype, 1 + len(weights), sums=True)
    return tally(args, flops, (target, *(elements(t, target.size) for t in (x, *weights))), infer)


def picked_backward(args: Arguments) -> Tally:
    """Count `nll_loss_backward` (dy, x, target, weight, reduction, …), which does not read x: its
    gradient is zero but at each target."""
    dy, x, target = args.first(3)
    weights = [elements(w, target.size) for w in args.tensors(3)]
    flops = computed(target.size, x.dtype, 1 + len(weights))
    return tally(args, flops, (dy, target, *weights, *args.tensors(6)), (like(x),))


def entropy(args: Arguments) -> Tally:
    """Count `cross_entropy_loss` (x, target, weight, reduction): a log softmax and a sum."""
    x, target = args.first(2)
    flops = computed(x.size, x.dtype, 4, 1, sums=True)
    return tally(
        args,
        flops,
        (x, target, *args.tensors(2)),
        lambda: (Tensor(() if args.integer(3, 1) else target.shape, x.dtype),),
    )


def axes_of(name: str) -> int:
    """Return the number of spatial axes, the digit in a name like `max_pool2d`."""
    return next(int(c) for c in name if c in "123")


def pool_results(args: Arguments, out: Tensor) -> tuple[Tensor, ...]:
    """Return the result of a pool, and the positions that a maximum also returns."""
    positions = args.name.endswith("_indices") or args.name.startswith("adaptive_max")
    return (out, like(out, "int64")) if positions else (out,)


def pool(args: Arguments) -> Tally:
    """Count a pool (x, kernel, stride, padding, …), the maximum or the average of each window."""
    axes, largest = axes_of(args.name), "max" in args.name
    x = args.tensor(0)
    kernel = spread(args.integers(1), axes)
    stride = spread(args.integers(2, ()) or kernel, axes)
    padding = spread(args.integers(3, (0,)), axes)
    dilation = spread(args.integers(4, (1,)) if largest else (1,), axes)
    ceil = args.flag(5 if largest else 4, False)
    if len(x.shape) not in (axes + 1, axes + 2):
        raise Unreadable("a pool needs another rank")
    place = tuple(
        windows(n, k, s, p, d, ceil)
        for n, k, s, p, d in zip(x.shape[-axes:], kernel, stride, padding, dilation, strict=True)
    )
    out = Tensor((*x.shape[:-axes], *place), x.dtype)
    flops = computed(out.size, x.dtype, math.prod(kernel))
    return tally(args, flops, (x,), pool_results(args, out))


def pool_backward(args: Arguments) -> Tally:
    """Return the cost of a pool's backward (dy, x, …), which does not read x."""
    dy, x = args.first(2)
    if "max" in args.name:
        at = 2 if args.name.startswith("adaptive") else 7
        each, read = 1, [dy, *args.tensors(at)]
    else:
        each, read = math.prod(spread(args.integers(2), axes_of(args.name))), [dy]
    return tally(args, computed(dy.size, dy.dtype, each), read, (like(x),))


def window_elements(x: Tensor, size: Sequence[int], axes: int) -> int:
    """Return the elements of all windows of an adaptive pool of the last *axes* of x to *size*.

    The windows of an axis are ⌊i·large/small⌋ … ⌈(i+1)·large/small⌉, which may overlap.
    """
    pairs = zip(size, x.shape[-axes:], strict=True)
    windows = math.prod(small + large - math.gcd(small, large) for small, large in pairs)
    return math.prod(x.shape[:-axes]) * windows


def adaptive(args: Arguments) -> Tally:
    """Count an adaptive pool (x, size of the result), whose windows are as even as possible."""
    x, axes = args.tensor(0), axes_of(args.name)
    size = spread(args.integers(1), axes)
    out = Tensor((*x.shape[:-axes], *size), x.dtype)
    flops = computed(window_elements(x, size, axes), x.dtype, 1)
    return tally(args, flops, (x,), pool_results(args, out))


def adaptive_backward(args: Arguments) -> Tally:
    """Count an adaptive pool's backward (dy, x), over the windows of the forward pass."""
    (dy, x), axes = args.first(2), axes_of(args.name)
    flops = computed(window_elements(x, dy.shape[-axes:], axes), x.dtype, 1)
    return tally(args, flops, (dy,), (like(x),))


def resampled(taps: int, backward: bool) -> Rule:
    """Return the rule for resampling (x, size of the result, …), or for its *backward* (dy, size of
    dy, size of x, …).

    Each element of the result takes a product and a sum for each of its *taps*.
    """

    def rule(args: Arguments) -> Tally:
        given, axes = args.tensor(0), axes_of(args.name)

        def infer() -> Iterable[Tensor]:
            if backward:
                return (Tensor(args.integers(2), given.dtype),)
            return (Tensor((*given.shape[:-axes], *args.integers(1)), given.dtype),)

        out = results(args, infer)[:1]
        if not out:
            raise Unreadable("the size of the result is unknown")
        # n products have n − 1 sums; backward each product, and `nearest`, is added to the result.
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
