"""Count fused optimizers over lists of tensors, and the arithmetic of `_foreach_*`.

FLOPs of a parameter, in the order of torch's kernels (fused_adam_utils.cuh, FusedSgdKernel.cu):

    Adam      m 3, v 4, √v and its ratio 1, ε 1, step 3 = 12 and a square root; AMSGrad's maximum 1,
              weight decay 2 (AdamW 1), gradients unscaled 1
    SGD       step 2; momentum 3, Nesterov 2, weight decay 2, gradients unscaled 1
    Adagrad   sum of squares 2, ε 1, step 3 = 6 and a square root; weight decay 2
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpuperf.model.aten import Tensor
from gpuperf.model.cost import Flops
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.pointwise import FORMULAS, each, result_dtype
from gpuperf.profile.cost.reduction import REDUCTIONS
from gpuperf.profile.cost.shapes import common_shape, promoted
from gpuperf.profile.cost.tally import Rule, Rules, Tally, computed, like, moved, named, tally


def merged(parts: Iterable[tuple[Flops, ...]]) -> tuple[Flops, ...]:
    """Return the sum of *parts* by kind, dtype and dtype of accumulation."""
    totals: dict[tuple[str, str, str], Flops] = {}
    for flops in (f for part in parts for f in part):
        key = (flops.kind, flops.dtype, flops.accumulate)
        before = totals[key].count if key in totals else 0
        totals[key] = Flops(before + flops.count, flops.kind, flops.dtype, flops.accumulate)
    return tuple(totals.values())


def stepped(
    args: Arguments, plain: int, special: int, states: Sequence[int], steps: int, scale: int
) -> Tally:
    """Count an optimizer's step with *plain* and *special* FLOPs for each element of a parameter.

    Argument 0 (parameters) and those at *states* are read and written; argument 1 (gradients) and
    *steps* are read. If argument *scale* is a tensor, the gradients are unscaled, and written too.
    """
    parameters, gradients = args.tensors(0), args.tensors(1)
    if not parameters or len(parameters) != len(gradients):
        raise Unreadable("a gradient for each parameter is needed")
    unscaled = bool(args.tensors(scale))
    kept = [*parameters, *args.tensors(*states)]
    flops = (computed(p.size, p.dtype, plain + unscaled, special) for p in parameters)
    read = [*kept, *gradients, *args.tensors(steps)]
    return Tally(merged(flops), moved(read, [*kept, *(gradients if unscaled else ())]))


def adam(decay: int) -> Rule:
    """Return the rule for fused Adam (parameters, gradients, m, v, largest v, steps, lr, β1, β2,
    weight decay, ε, …), with *decay* FLOPs for weight decay."""

    def rule(args: Arguments) -> Tally:
        plain = 12 + bool(args.tensors(4)) + decay * (args.number(9, 0.0) != 0)
        return stepped(args, plain, 1, (2, 3, 4), 5, 13)

    return rule


def sgd(args: Arguments) -> Tally:
    """Count fused SGD (parameters, gradients, momenta, weight decay, momentum, lr, dampening,
    nesterov, maximize, first step, …). Its first step sets the momenta to the gradients."""
    plain = 2 + 2 * (args.number(3, 0.0) != 0)
    momenta = args.tensors(2)
    first = "True" in args.call.concrete[9:10]
    if momenta:
        plain += 3 * (not first) + 2 * ("True" in args.call.concrete[7:8])
    tally = stepped(args, plain, 0, () if first else (2,), -1, 10)
    if not first:
        return tally
    return Tally(tally.flops, moved(args.tensors(0, 1), args.tensors(0, 2)))


def adagrad(args: Arguments) -> Tally:
    """Count fused Adagrad (parameters, gradients, sums, steps, lr, lr decay, weight decay, …)."""
    return stepped(args, 6 + 2 * (args.number(6, 0.0) != 0), 1, (2,), 3, 9)


def unscaled(args: Arguments) -> Tally:
    """Count `_amp_foreach_non_finite_check_and_unscale_` (gradients, found_inf, scale)."""
    gradients = args.tensors(0)
    flops = merged(computed(t.size, t.dtype, 2) for t in gradients)
    return Tally(flops, moved(args.tensors(0, 2), gradients))


def operand(args: Arguments, at: int, i: int, count: int) -> tuple[Tensor, ...]:
    """Return the i-th of the *count* tensors in argument *at*, or its only tensor."""
    given = args.tensors(at)
    return given[i : i + 1] if len(given) == count else given[:1]


def foreach(name: str) -> Rule:
    """Return the rule for `_foreach_` *name*, a pointwise operator over lists of tensors."""
    formula = FORMULAS[name]

    def rule(args: Arguments) -> Tally:
        count = max(len(args.tensors(at)) for at in formula.operands)
        made, flops = [], []
        plain, special = each(args, name, formula)
        for i in range(count):
            given = [t for at in formula.operands for t in operand(args, at, i, count)]
            dtype = promoted(given)
            shape = common_shape(given)
            made.append(Tensor(shape, result_dtype(name, formula, dtype)))
            flops.append(computed(math.prod(shape), dtype, plain, special))
        if not made:
            raise Unreadable("the lists are empty")
        expected = args.tensors(0) if args.in_place else made
        return tally(args, merged(flops), args.tensors(*formula.operands), expected)

    return rule


def foreach_moved(source: int) -> Rule:
    """Return the rule for a `_foreach_` operator that writes a list of tensors, and reads the list
    in argument *source* (−1: none)."""

    def rule(args: Arguments) -> Tally:
        lists = args.tensors(0)
        expected = lists if args.in_place else map(like, lists)
        return tally(args, (), args.tensors(source), expected)

    return rule


def foreach_reduced(name: str) -> Rule:
    """Return the rule for `_foreach_` *name*, which reduces each tensor of a list to a number."""
    plain = REDUCTIONS[name].plain

    def rule(args: Arguments) -> Tally:
        given = args.tensors(0)
        flops = merged(computed(t.size, t.dtype, plain, sums=True) for t in given)
        return tally(args, flops, given, [Tensor((), t.dtype) for t in given])

    return rule


FOREACH = """abs acos add addcdiv addcmul asin atan ceil clamp_max clamp_min cos cosh div erf erfc
    exp expm1 floor frac lerp lgamma log log10 log1p log2 maximum minimum mul neg pow reciprocal
    round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc"""
RULES: Rules = {
    **named("optimizer", adam(2), "_fused_adam"),
    **named("optimizer", adam(1), "_fused_adamw"),
    **named("optimizer", sgd, "_fused_sgd"),
    **named("optimizer", adagrad, "_fused_adagrad"),
    **named("optimizer", unscaled, "_amp_foreach_non_finite_check_and_unscale"),
    **{f"_foreach_{name}": ("optimizer", foreach(name)) for name in FOREACH.split()},
    **named("optimizer", foreach_moved(1), "_foreach_copy"),
    **named("optimizer", foreach_moved(0), "_foreach_clone"),
    **named("optimizer", foreach_moved(-1), "_foreach_zero"),
    **named("optimizer", foreach_reduced("norm"), "_foreach_norm"),
    **named("optimizer", foreach_reduced("max"), "_foreach_max"),
}
