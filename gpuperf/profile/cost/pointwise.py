"""Count pointwise operators: FLOPs and transcendentals for each element of the result.

A formula counts what its algebra says, written without sharing: silu is x / (1 + exp −x), 3 and an
exponential. Selections (where, masked_fill, dropout's zeros) compute nothing; a comparison is 1.
The dtype is what torch promotes to. Every operand is read once and the result written once, in
place or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuperf.model.aten import Tensor
from gpuperf.model.cost import Flops
from gpuperf.profile.cost.arguments import NUMBER, Arguments, Unreadable
from gpuperf.profile.cost.shapes import INTEGERS, common_shape, promoted
from gpuperf.profile.cost.tally import REAL, Rule, Rules, Tally, computed, like, named, tally


@dataclass(frozen=True)
class Formula:
    """FLOPs and transcendentals of an element of the result, and the positions of the operands.

    With *truth* the result is bool. *values* are the positions of the operands that decide its
    dtype; empty: all.
    """

    plain: int
    special: int = 0
    operands: tuple[int, ...] = (0,)
    truth: bool = False
    values: tuple[int, ...] = ()


TWO, THREE = (0, 1), (0, 1, 2)
TABLE: tuple[tuple[Formula, str], ...] = (
    # One operand.
    (Formula(0), "positive real_if_close"),
    (
        Formula(1),
        "abs absolute neg negative relu sign sgn floor ceil round trunc fix reciprocal"
        " square bitwise_not conj_physical threshold deg2rad rad2deg",
    ),
    (Formula(2), "frac hardtanh relu6 leaky_relu rrelu hardshrink"),
    (Formula(3), "nan_to_num softshrink"),
    (Formula(4), "hardsigmoid"),  # sum, two comparisons, quotient
    (Formula(5), "hardswish"),
    (
        Formula(0, 1),
        "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan arcsin arccos"
        " arctan sinh cosh tanh asinh acosh atanh arcsinh arccosh arctanh sqrt rsqrt"
        " erf erfc erfinv lgamma digamma sinc i0 angle special_erf special_erfc"
        " special_expm1 special_exp2 special_log1p special_i0",
    ),
    (Formula(3, 1), "sigmoid silu special_expit"),  # negation, sum, quotient
    (Formula(4, 1), "gelu"),  # x·(1 + erf(x·√½))·½
    (Formula(2, 1), "elu celu"),  # comparison, product
    (Formula(3, 1, values=(0,)), "selu"),
    (Formula(3, 2), "softplus log_sigmoid_forward logit"),
    (Formula(4, 3), "mish"),  # x·tanh(log(1 + exp x))
    (Formula(1, truth=True), "isnan isinf isfinite isneginf isposinf signbit logical_not"),
    # Two.
    (
        Formula(1, 0, TWO),
        "add sub subtract rsub mul multiply div divide true_divide floor_divide"
        " maximum minimum fmax fmin fmod remainder copysign heaviside nextafter"
        " __and__ __or__ __xor__ __iand__ __ior__ __ixor__ bitwise_and bitwise_or"
        " bitwise_xor bitwise_left_shift bitwise_right_shift __lshift__ __rshift__"
        " __ilshift__ __irshift__ gcd lcm ldexp clamp_min clamp_max",
    ),
    (Formula(0, 1, TWO), "pow float_power atan2 arctan2 hypot"),
    (Formula(1, 1, TWO), "xlogy special_xlogy"),
    (Formula(3, 2, TWO), "logaddexp logaddexp2"),
    (Formula(2, 0, TWO), "_prelu_kernel isclose"),
    (
        Formula(1, 0, TWO, truth=True),
        "eq ne lt le gt ge not_equal less less_equal greater"
        " greater_equal logical_and logical_or logical_xor",
    ),
    (Formula(0, 0, TWO, values=(0,)), "masked_fill"),
    # Three.
    (Formula(2, 0, THREE), "addcmul addcdiv"),
    (Formula(3, 0, THREE), "lerp"),  # difference, product, sum
    (Formula(0, 0, THREE, values=(1, 2)), "where"),
    # Gradients: (dy, x or y, …).
    (Formula(1, 0, TWO), "threshold_backward"),
    (
        Formula(2, 0, TWO),
        "native_dropout_backward _masked_scale hardtanh_backward"
        " leaky_relu_backward hardshrink_backward softshrink_backward",
    ),
    (Formula(3, 0, TWO), "sigmoid_backward tanh_backward hardsigmoid_backward"),
    (Formula(5, 0, TWO), "hardswish_backward logit_backward"),
    # dy·(Φ(x) + x·φ(x)): Φ 3 and erf, φ 3 and exp, the rest 3.
    (Formula(9, 2, TWO), "gelu_backward"),
    (Formula(8, 1, TWO), "silu_backward"),  # σ 3 and exp; dy·σ·(1 + x·(1 − σ)) 5
    (Formula(4, 1, TWO), "softplus_backward log_sigmoid_backward"),
    (Formula(10, 3, TWO), "mish_backward"),
    (Formula(3, 1, (0, 5)), "elu_backward"),
    # Losses backward: (dy, x, target), averaged.
    (Formula(3, 0, THREE), "mse_loss_backward"),
    (Formula(4, 0, THREE), "smooth_l1_loss_backward huber_loss_backward"),
    (Formula(5, 0, (0, 1, 2, 3)), "binary_cross_entropy_backward"),
)
FORMULAS = {name: formula for formula, names in TABLE for name in names.split()}
# FLOPs of an element of complex operands; `computed` doubles them, since each is two numbers.
COMPLEX = {
    **dict.fromkeys(("add", "sub", "rsub", "neg", "conj_physical"), 1),
    "mul": 3,
    **dict.fromkeys(("where", "masked_fill", "positive"), 0),
}
# Operators whose result is floating-point also for integers.
DIVIDES = {"div", "divide", "true_divide", "reciprocal", "sigmoid", "silu", "gelu"}


def bounds(args: Arguments) -> tuple[int, int]:
    """Return one FLOP for each bound that a `clamp` has, and no transcendental."""
    given = [bool(args.tensors(at)) or bool(args.text(at)) for at in (1, 2)]
    return sum(given), 0


def power(args: Arguments) -> tuple[int, int]:
    """Return (FLOPs, transcendentals) of `pow`: whole powers up to 3 are products."""
    exponent = 0.0 if args.tensors(1) else args.number(1, 0.0)
    return {2.0: (1, 0), 3.0: (2, 0), 1.0: (0, 0), -1.0: (1, 0), -2.0: (2, 0)}.get(exponent, (0, 1))


def tanh_form(exact: tuple[int, int], tanh: tuple[int, int]) -> Callable[..., tuple[int, int]]:
    """Return a function that gives the FLOPs of the form of gelu that a call asks for; a trace does
    not record the form, and counts as *exact*."""

    def count(args: Arguments) -> tuple[int, int]:
        at = 1 if args.name == "gelu" else 2
        return tanh if "tanh" in args.recorded(at) else exact

    return count


def scaled(plain: int, at: int) -> Callable[[Arguments], tuple[int, int]]:
    """Return a function that gives *plain* FLOPs, and one more if argument *at* is no factor 1."""
    return lambda args: (plain + args.scales(at), 0)


VARIABLE: Mapping[str, Callable[[Arguments], tuple[int, int]]] = {
    "clamp": bounds,
    "clip": bounds,
    "pow": power,
    # ½·x·(1 + tanh(c·(x + d·x³))): 8 and tanh; its gradient 17 and tanh.
    "gelu": tanh_form((4, 1), (8, 1)),
    "gelu_backward": tanh_form((9, 2), (17, 1)),
    "add": scaled(1, 2),
    "sub": scaled(1, 2),
    "subtract": scaled(1, 2),
    "rsub": scaled(1, 2),
    "addcmul": scaled(2, 3),
    "addcdiv": scaled(2, 3),
}
FORMULAS |= {"clamp": Formula(2, 0, THREE), "clip": Formula(2, 0, THREE)}


def each(args: Arguments, name: str, formula: Formula) -> tuple[int, int]:
    """Return the FLOPs and transcendentals for each element of the call's result."""
    variable = VARIABLE.get(name)
    return variable(args) if variable else (formula.plain, formula.special)


def result_dtype(name: str, formula: Formula, dtype: str) -> str:
    """Return the dtype of a result whose operands promote to *dtype*."""
    if formula.truth:
        return "bool"
    floats = name in DIVIDES or (formula.special and name not in ("pow", "angle"))
    return "fp32" if floats and is_whole(dtype) else dtype


def is_whole(dtype: str) -> bool:
    """Return whether elements of *dtype* are integers or truth values."""
    return dtype == "bool" or dtype in INTEGERS


def flops_of(
    args: Arguments, name: str, formula: Formula, count: int, dtype: str
) -> tuple[Flops, ...]:
    """Return the FLOPs of *count* elements of *dtype* under operator *name*.

    Raises: Unreadable for complex elements without a formula.
    """
    if dtype in REAL:
        if name not in COMPLEX:
            raise Unreadable(f"{name} of complex numbers")
        return computed(count, dtype, COMPLEX[name])
    return computed(count, dtype, *each(args, name, formula))


def operands(args: Arguments, formula: Formula) -> tuple[Tensor, ...]:
    """Return the tensors among the operands. Raises: Unreadable if there are none."""
    tensors = args.tensors(*formula.operands)
    if not tensors:
        raise Unreadable("no operand is a tensor")
    return tensors


def numbers(args: Arguments, formula: Formula) -> list[str]:
    """Return the operands that are numbers, as text. Raises: Unreadable for other text."""
    recorded = args.call.concrete
    at = [i for i in formula.values or formula.operands if i < len(recorded)]
    texts = [recorded[i][:40] for i in at if not args.tensors(i)]
    texts = [text for text in texts if text not in ("", "None")]
    if any(not NUMBER.fullmatch(text) and text not in ("True", "False") for text in texts):
        raise Unreadable("an operand is neither a tensor nor a number")
    return texts


def elementwise(formula: Formula) -> Rule:
    """Return the rule for a pointwise operator with *formula*."""

    def rule(args: Arguments) -> Tally:
        given = operands(args, formula)
        deciding = args.tensors(*formula.values) or given
        dtype = promoted(deciding, numbers(args, formula))
        out_dtype = result_dtype(args.name, formula, dtype)
        out = Tensor(common_shape(given), out_dtype)
        if args.in_place:
            out = args.tensor(0)
        computed_in = out_dtype if is_whole(dtype) else dtype
        flops = flops_of(args, args.name, formula, out.size, computed_in)
        return tally(args, flops, given, (out,))

    return rule


def dropout(args: Arguments) -> Tally:
    """Return the cost of `native_dropout`, 3 FLOPs an element: compare, times mask, times scale."""
    x = args.tensor(0)
    mask = like(x, "uint8" if args.name == "_fused_dropout" else "bool")
    return tally(args, computed(x.size, x.dtype, 3), (x,), (like(x), mask))


def gated(plain: int, special: int, backward: bool) -> Rule:
    """Return the rule for `glu`, half of x times the sigmoid of its other half, or for its
    *backward*, with *plain* and *special* FLOPs an element of `glu`'s result."""

    def rule(args: Arguments) -> Tally:
        x = args.tensor(1 if backward else 0)
        given = (args.tensor(0), x) if backward else (x,)
        out = like(x) if backward else Tensor((x.size // 2,), x.dtype)
        return tally(args, computed(x.size // 2, x.dtype, plain, special), given, (out,))

    return rule


def prelu_backward(args: Arguments) -> Tally:
    """Count the backward (dy, x, weight) of `prelu`: dx, and a dweight of each element."""
    given = args.first(3)
    out = Tensor(common_shape(given), given[0].dtype)
    return tally(args, computed(out.size, out.dtype, 4), given, (out, out))


RULES: Rules = {
    **{name: ("elementwise", elementwise(formula)) for name, formula in FORMULAS.items()},
    **named("elementwise", dropout, "native_dropout _fused_dropout"),
    **named("elementwise", gated(4, 1, backward=False), "glu"),
    # σ 3 and exp; dy·σ 1; dy·a·σ·(1 − σ) 4
    **named("elementwise", gated(8, 1, backward=True), "glu_backward"),
    **named("elementwise", prelu_backward, "_prelu_kernel_backward"),
}
