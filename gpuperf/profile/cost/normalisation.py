"""Count layer, group, batch and RMS norms and softmax, in the FLOPs an element of `kernels/ops`.

Forward, with u the normalised x:

    mean 1, difference 1, squares and their sum 2, u 1, y = u·weight + bias 2      7
    RMS: squares and their sum 2, u 1, y = u·weight 1                              4
    at inference, with known statistics: difference 1, u 1, y 2                    4

Backward, with g = dy·weight: u 2, dweight = Σ dy·u 2, dbias = Σ dy 1, g 1, the means of g·u and of
g 3, dx 4 — 13; RMS 9, without differences, mean g and dbias. A norm without weight or bias, and a
gradient that is not asked for, have fewer. Softmax: 4 and an exponential (maximum, difference, sum,
quotient); log softmax the same, its logarithm being one a row; backward y·(dy − Σ dy·y) 4, and of
the logarithm dy − exp y·Σ dy 3 and an exponential.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpuperf.model.aten import Tensor
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.tally import Rule, Rules, Tally, computed, like, moved, named, tally


def statistics(x: Tensor, count: int, each: int) -> list[Tensor]:
    """Return *each* statistics of *count* groups, in fp32 if x has 16 bits or fewer."""
    dtype = "fp32" if x.dtype in ("bf16", "fp16", "fp8") else x.dtype
    return [Tensor((count,), dtype)] * each


def layer(kept: int, rms: bool = False) -> Rule:
    """Return the rule for a layer norm, or an RMS norm, that returns *kept* statistics of each row.

    A row has the shape in argument 1.
    """

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        given = args.tensors(2) if rms else args.tensors(2, 3)

        def infer() -> Iterable[Tensor]:
            row = math.prod(args.integers(1))
            if kept and (row < 1 or x.size % row):
                raise Unreadable("the rows have another length")
            return like(x), *statistics(x, x.size // row if kept else 0, kept)

        flops = computed(x.size, x.dtype, (3 if rms else 5) + len(given), sums=True)
        return tally(args, flops, (x, *given), infer)

    return rule


def group(args: Arguments) -> Tally:
    """Count `native_group_norm` (x, weight, bias, n, c, hw, groups, eps), or `group_norm`."""
    x, whole = args.tensor(0), args.name == "group_norm"
    given = args.tensors(2, 3) if whole else args.tensors(1, 2)

    def infer() -> Iterable[Tensor]:
        if whole:
            return (like(x),)
        return like(x), *statistics(x, args.integer(3) * args.integer(6), 2)

    flops = computed(x.size, x.dtype, 5 + len(given), sums=True)
    return tally(args, flops, (x, *given), infer)


def batch(training: int | bool, kept: int = 2) -> Rule:
    """Return the rule for a batch norm (x, weight, bias, running mean, running variance, …) that
    returns *kept* statistics of each channel.

    *training* is the position of that flag, or the flag itself; a batch norm that trains writes the
    running statistics too.
    """

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        # `_native_batch_norm_legit.no_stats` has no running statistics, and two arguments less.
        alone = args.name == "_native_batch_norm_legit" and args.count == 6
        at = 3 if alone else training
        trains = at if isinstance(at, bool) else args.flag(at)
        given = args.tensors(1, 2)
        running = () if alone else args.tensors(3, 4)
        if len(x.shape) < 2:
            raise Unreadable("x has no channels")
        made = args.call.outputs[:3] or (like(x), *statistics(x, x.shape[1], kept if trains else 0))
        flops = computed(x.size, x.dtype, (5 if trains else 2) + len(given), sums=trains)
        written = (*made, *(running if trains else ()))
        return Tally(flops, moved((x, *given, *running), written))

    return rule


@dataclass(frozen=True)
class Gradient:
    """Positions of the arguments of a norm's backward; −1 if the operator has none.

    *mask* are the flags of its *gradients* (a number); *known* are the statistics at inference.
    """

    weight: int
    statistics: tuple[int, ...]
    mask: int = -1
    gradients: int = 3
    x: int = 1
    trains: int | bool = True
    known: tuple[int, ...] = ()


def norm_backward(of: Gradient) -> Rule:
    """Return the rule for a norm's backward, which returns the gradients that are asked for."""

    def rule(args: Arguments) -> Tally:
        x, dy, weight = args.tensor(of.x), args.tensor(1 - of.x), args.optional(of.weight)
        trains = of.trains if isinstance(of.trains, bool) else args.flag(of.trains)
        wanted = args.flags(of.mask, of.gradients) if of.mask >= 0 else (True,) * 3
        dx, dweight, dbias = (*wanted, False)[:3]
        dweight, dbias = dweight and weight is not None, dbias and weight is not None
        each = gradient_terms(of.gradients == 2, weight is not None, (dx, dweight, dbias), trains)
        read = [dy, x, *((weight,) if weight and dx else ())]
        read += args.tensors(*(of.statistics if trains or not of.known else of.known))
        made = [like(x)] * dx + ([like(weight)] * (dweight + dbias) if weight else [])
        flops = computed(x.size, x.dtype, each, sums=True)
        return tally(args, flops, read if any(wanted) else (), made)

    return rule


def gradient_terms(rms: bool, weight: bool, wanted: tuple[bool, bool, bool], trains: bool) -> int:
    """Return the FLOPs an element of a norm's backward, by the formulas in the module's docstring.

    *wanted* are dx, dweight and dbias; *weight* says whether there is one.
    """
    dx, dweight, dbias = wanted
    u = (1 if rms else 2) * (dweight or (dx and trains))
    through = (2 + 3 if rms else 3 + 4) if trains else 1
    return u + 2 * dweight + dbias + (weight + through) * dx


def stage(each: int) -> Rule:
    """Return the rule for a stage of a synchronised batch norm, with *each* FLOPs an element."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(0)
        flops = computed(x.size, x.dtype, each, sums=True)
        return tally(
            args, flops, args.call.tensors, (like(x),) if args.name.endswith("elemt") else ()
        )

    return rule


def softmax(args: Arguments) -> Tally:
    """Return the cost of a softmax (x, dim, half_to_float), (x, dim, dtype) or (x, mask, …)."""
    x, masked = args.tensor(0), "masked" in args.name

    def infer() -> Iterable[Tensor]:
        if args.name in ("_softmax", "_log_softmax"):
            return (like(x, "fp32" if args.flag(2, False) else ""),)
        return (like(x, "" if masked else args.dtype(2, x.dtype)),)

    flops = computed(x.size, x.dtype, 4, 1, sums=True)
    return tally(args, flops, (x, *(args.tensors(1) if masked else ())), infer)


def softmax_backward(plain: int, special: int) -> Rule:
    """Return the rule for a softmax's backward (dy, y, dim, dtype), by FLOPs an element."""

    def rule(args: Arguments) -> Tally:
        dy, y = args.first(2)
        flops = computed(y.size, y.dtype, plain, special, sums=True)
        return tally(args, flops, (dy, y), lambda: (like(y, args.dtype(3, dy.dtype)),))

    return rule


NORMS: tuple[tuple[Rule, str], ...] = (
    (layer(2), "native_layer_norm"),
    (layer(0), "layer_norm"),
    (layer(1, rms=True), "_fused_rms_norm"),
    (layer(0, rms=True), "rms_norm"),
    (norm_backward(Gradient(5, (3, 4), 7)), "native_layer_norm_backward"),
    (norm_backward(Gradient(4, (3,), 5, gradients=2)), "_fused_rms_norm_backward"),
    (group, "native_group_norm group_norm"),
    (norm_backward(Gradient(4, (2, 3), 9)), "native_group_norm_backward"),
    (batch(5), "native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm"),
    (batch(5, kept=0), "batch_norm"),
    (batch(training=True), "_batch_norm_with_update"),
    (batch(training=False), "_native_batch_norm_legit_no_training _batch_norm_no_update"),
    (
        norm_backward(Gradient(2, (5, 6), 9, trains=7, known=(3, 4))),
        "native_batch_norm_backward batch_norm_backward",
    ),
    (
        norm_backward(Gradient(2, (5, 6), x=0)),
        "cudnn_batch_norm_backward miopen_batch_norm_backward",
    ),
    # Mean, difference, squares and their sum; of the whole, difference, u, y.
    (stage(4), "batch_norm_stats batch_norm_gather_stats_with_counts batch_norm_elemt"),
    (stage(5), "batch_norm_backward_reduce"),  # u, Σ dy·u, Σ dy
    (stage(7), "batch_norm_backward_elemt"),  # u, g, dx
)
SOFTMAXES = "_softmax _log_softmax _safe_softmax _masked_softmax softmax log_softmax"
RULES: Rules = {
    **{name: ("normalisation", rule) for rule, names in NORMS for name in names.split()},
    **named("softmax", softmax, SOFTMAXES),
    **named("softmax", softmax_backward(4, 0), "_softmax_backward_data"),
    **named("softmax", softmax_backward(3, 1), "_log_softmax_backward_data"),
}
