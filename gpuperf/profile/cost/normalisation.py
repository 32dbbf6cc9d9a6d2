"""Layer, group, batch and RMS norms, softmax: FLOPs an element, as `kernels/ops` counts them.

Forward, u being x made regular:

    mean 1, difference 1, squares and their sum 2, u 1, y = u·weight + bias 2      7
    RMS: squares and their sum 2, u 1, y = u·weight 1                              4
    at inference, with known statistics: difference 1, u 1, y 2                    4

Backward, with g = dy·weight: u 2, dweight = Σ dy·u 2, dbias = Σ dy 1, g 1, the means of g·u and of
g 3, dx 4 — 13; RMS 9, without differences, mean g and dbias. What has no weight, no bias, or is not
asked for is left out. Softmax: 4 and an exponential (maximum, difference, sum, quotient); log
softmax the same, its logarithm being one a row; backward y·(dy − Σ dy·y) 4, and of the logarithm
dy − exp y·Σ dy 3 and an exponential.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpuperf.model.aten import Tensor
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.tally import Rule, Rules, Tally, computed, fresh, inferred, moved, named


def statistics(x: Tensor, count: int, each: int) -> list[Tensor]:
    """*each* statistics of *count* groups, which 16 bits would not hold."""
    dtype = "fp32" if x.dtype in ("bf16", "fp16", "fp8") else x.dtype
    return [Tensor((count,), dtype)] * each


def layer(weight: int, bias: int, kept: int) -> Rule:
    """Over the last axes, as many as argument 1 has; *kept* statistics of a row are results."""
    rms = bias < 0

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        given = [t for at in (weight, bias) if at >= 0 for t in args.tensors(at)]

        def infer() -> Iterable[Tensor]:
            row = math.prod(args.integers(1))
            if kept and (row < 1 or x.size % row):
                raise Unreadable("rows of another length")
            return fresh(x), *statistics(x, x.size // row if kept else 0, kept)

        flops = computed(x.size, x.dtype, (3 if rms else 5) + len(given), sums=True)
        return Tally(flops, moved((x, *given), args.call.outputs or inferred(infer)))

    return rule


def group(args: Arguments) -> Tally:
    """(x, weight, bias, n, c, hw, groups, eps); `group_norm` is (x, groups, weight, bias)."""
    x, whole = args.tensor(0), args.name == "group_norm"
    given = [t for at in ((2, 3) if whole else (1, 2)) for t in args.tensors(at)]

    def infer() -> Iterable[Tensor]:
        if whole:
            return (fresh(x),)
        return fresh(x), *statistics(x, args.integer(3) * args.integer(6), 2)

    flops = computed(x.size, x.dtype, 5 + len(given), sums=True)
    return Tally(flops, moved((x, *given), args.call.outputs or inferred(infer)))


@dataclass(frozen=True)
class Batch:
    """Positions of a batch norm: whether it trains is argument *training*, or always, or never."""

    training: int | bool
    kept: int = 2  # results that are statistics


def batch(of: Batch) -> Rule:
    """(x, weight, bias, running mean, running variance, …): training, those are written too."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        # `_native_batch_norm_legit.no_stats` has no running statistics, and two arguments less.
        alone = args.name == "_native_batch_norm_legit" and args.count == 6
        at = 3 if alone else of.training
        trains = at if isinstance(at, bool) else args.flag(at)
        given = [t for i in (1, 2) for t in args.tensors(i)]
        running = [] if alone else [t for i in (3, 4) for t in args.tensors(i)]
        if len(x.shape) < 2:
            raise Unreadable("no batch of channels")

        kept = statistics(x, x.shape[1], of.kept if trains else 0)
        written = [*(args.call.outputs[:3] or (fresh(x), *kept)), *(running if trains else ())]
        flops = computed(x.size, x.dtype, (5 if trains else 2) + len(given), sums=trains)
        return Tally(flops, moved((x, *given, *running), written))

    return rule


@dataclass(frozen=True)
class Gradient:
    """Positions of a norm's backward; −1: there is none."""

    weight: int
    statistics: tuple[int, ...]
    asked: int = -1
    gradients: int = 3
    x: int = 1
    trains: int | bool = True
    known: tuple[int, ...] = ()  # statistics where it does not train


def norm_backward(of: Gradient) -> Rule:
    """dx, dweight and dbias, those asked for, of dy, x, weight and statistics."""

    def rule(args: Arguments) -> Tally:
        x, dy, weight = args.tensor(of.x), args.tensor(1 - of.x), args.optional(of.weight)
        trains = of.trains if isinstance(of.trains, bool) else args.flag(of.trains)
        asked = args.flags(of.asked, of.gradients) if of.asked >= 0 else (True,) * 3
        dx, dweight, dbias = (*asked, False)[:3]
        dweight, dbias = dweight and weight is not None, dbias and weight is not None
        each = gradient_terms(of.gradients == 2, weight is not None, (dx, dweight, dbias), trains)
        known = of.statistics if trains or not of.known else of.known
        read = [dy, x, *((weight,) if weight and dx else ())]
        read += [t for at in known for t in args.tensors(at)]
        made = [fresh(x)] * dx + [fresh(weight)] * (dweight + dbias) if weight else [fresh(x)] * dx
        flops = computed(x.size, x.dtype, each, sums=True)
        return Tally(flops, moved(read if any(asked) else (), args.call.outputs or made))

    return rule


def gradient_terms(rms: bool, weight: bool, asked: tuple[bool, bool, bool], trains: bool) -> int:
    """FLOPs an element: see the top."""
    dx, dweight, dbias = asked
    u = (1 if rms else 2) * (dweight or (dx and trains))
    through = (2 + 3 if rms else 3 + 4) if trains else 1
    return u + 2 * dweight + dbias + (weight + through) * dx


def stage(each: int) -> Rule:
    """A part of a synchronised batch norm: *each* FLOPs an element, of what it gets, once."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        flops = computed(x.size, x.dtype, each, sums=True)
        elementwise = args.name.endswith("elemt")
        written = args.call.outputs or ((fresh(x),) if elementwise else ())
        return Tally(flops, moved(args.call.tensors, written))

    return rule


def softmax(args: Arguments) -> Tally:
    """(x, dim, half_to_float), or (x, dim, dtype); of a mask too."""
    x = args.tensor(0)

    def infer() -> Iterable[Tensor]:
        if args.name in ("_softmax", "_log_softmax"):
            return (fresh(x, "fp32" if args.flag(2, False) else ""),)
        return (fresh(x, args.dtype(2, x.dtype) if "masked" not in args.name else ""),)

    masks = args.tensors(1) if "masked" in args.name else ()
    flops = computed(x.size, x.dtype, 4, 1, sums=True)
    return Tally(flops, moved((x, *masks), args.call.outputs or inferred(infer)))


def softmax_backward(plain: int, special: int) -> Rule:
    """(dy, y, dim, dtype of x)."""

    def rule(args: Arguments) -> Tally:
        dy, y = args.tensor(0), args.tensor(1)
        flops = computed(y.size, y.dtype, plain, special, sums=True)
        made = inferred(lambda: (fresh(y, args.dtype(3, dy.dtype)),))
        return Tally(flops, moved((dy, y), args.call.outputs or made))

    return rule


SOFTMAXES = "_softmax _log_softmax _safe_softmax _masked_softmax softmax log_softmax"
BATCH_BACKWARD = norm_backward(Gradient(2, (5, 6), 9, trains=7, known=(3, 4)))
RULES: Rules = {
    **named("normalisation", layer(2, 3, 2), "native_layer_norm"),
    **named("normalisation", layer(2, 3, 0), "layer_norm"),
    **named("normalisation", layer(2, -1, 1), "_fused_rms_norm"),
    **named("normalisation", layer(2, -1, 0), "rms_norm"),
    **named("normalisation", norm_backward(Gradient(5, (3, 4), 7)), "native_layer_norm_backward"),
    **named(
        "normalisation",
        norm_backward(Gradient(4, (3,), 5, gradients=2)),
        "_fused_rms_norm_backward",
    ),
    **named("normalisation", group, "native_group_norm group_norm"),
    **named("normalisation", norm_backward(Gradient(4, (2, 3), 9)), "native_group_norm_backward"),
    **named(
        "normalisation",
        batch(Batch(5)),
        "native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm",
    ),
    **named("normalisation", batch(Batch(5, kept=0)), "batch_norm"),
    **named("normalisation", batch(Batch(training=True)), "_batch_norm_with_update"),
    **named(
        "normalisation",
        batch(Batch(training=False)),
        "_native_batch_norm_legit_no_training _batch_norm_no_update",
    ),
    **named("normalisation", BATCH_BACKWARD, "native_batch_norm_backward batch_norm_backward"),
    **named(
        "normalisation",
        norm_backward(Gradient(2, (5, 6), x=0)),
        "cudnn_batch_norm_backward miopen_batch_norm_backward",
    ),
    # Mean, difference, squares and their sum; of the whole, difference, u, y.
    **named(
        "normalisation",
        stage(4),
        "batch_norm_stats batch_norm_gather_stats_with_counts batch_norm_elemt",
    ),
    **named("normalisation", stage(5), "batch_norm_backward_reduce"),  # u, Σ dy·u, Σ dy
    **named("normalisation", stage(7), "batch_norm_backward_elemt"),  # u, g, dx
    **named("softmax", softmax, SOFTMAXES),
    **named("softmax", softmax_backward(4, 0), "_softmax_backward_data"),
    **named("softmax", softmax_backward(3, 1), "_log_softmax_backward_data"),
}
