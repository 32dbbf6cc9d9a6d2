"""Count convolutions: 2 FLOPs for each element of the weight at each place where it is applied.

    forward      2 · batch · places · elements of the weight (c_out, c_in/groups, *kernel)
    transposed   the same, with places of the input and a weight (c_in, c_out/groups, *kernel)
    backward     the same again for each of dx and dweight that is asked for, and a sum for dbias

Multiply-adds with padding count too, as in torch's FlopCounterMode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuperf.model.aten import Tensor
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.shapes import spread, windows
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


@dataclass(frozen=True)
class Convolution:
    """Positions of a convolution's arguments; −1 if the operator has none.

    *transposed* is the position of that flag, or the flag itself. *added* is a tensor that is added
    to the result.
    """

    stride: int
    padding: int
    dilation: int = -1
    groups: int = -1
    bias: int = -1
    transposed: int | bool = False
    output_padding: int = -1
    added: int = -1
    relu: bool = False

    def is_transposed(self, args: Arguments) -> bool:
        """Return the flag. Raises: Unreadable if it was not recorded."""
        return self.transposed if isinstance(self.transposed, bool) else args.flag(self.transposed)


OPERATORS = (
    (
        Convolution(3, 4, 5, 8, bias=2, transposed=6, output_padding=7),
        "convolution _convolution convolution_overrideable",
    ),
    (Convolution(3, 4, 5, 6, bias=2), "conv1d conv2d conv3d"),
    (
        Convolution(3, 4, 7, 6, bias=2, transposed=True, output_padding=5),
        "conv_transpose1d conv_transpose2d conv_transpose3d",
    ),
    (Convolution(3, 2, 4, 5), "cudnn_convolution"),
    (Convolution(4, 2, 5, 6, transposed=True, output_padding=3), "cudnn_convolution_transpose"),
    (
        Convolution(5, 3, 6, 7, bias=2, transposed=True, output_padding=4),
        "miopen_convolution_transpose",
    ),
    (Convolution(3, 4, 5, 6, bias=2, relu=True), "cudnn_convolution_relu miopen_convolution_relu"),
    (
        Convolution(5, 6, 7, 8, bias=4, added=2, relu=True),
        "cudnn_convolution_add_relu miopen_convolution_add_relu",
    ),
    (
        Convolution(4, 3, 5, 6, bias=2),
        "mkldnn_convolution miopen_convolution miopen_depthwise_convolution",
    ),
    (
        Convolution(4, 5, 6, bias=3),
        "_slow_conv2d_forward thnn_conv2d slow_conv3d_forward slow_conv3d _conv_depthwise2d"
        " conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d",
    ),
    (
        Convolution(4, 5, 7, bias=3, transposed=True, output_padding=6),
        "slow_conv_transpose2d slow_conv_transpose3d",
    ),
)


def result_shape(
    args: Arguments, of: Convolution, x: Tensor, weight: Tensor, transposed: bool
) -> tuple[int, ...]:
    """Return the shape of the result, ([batch,] c_out, *places). Raises: Unreadable."""
    kernel = weight.shape[2:]
    axes = len(kernel)

    def values(at: int, default: int) -> tuple[int, ...]:
        return spread(args.integers(at, (default,)) if at >= 0 else (default,), axes)

    stride, dilation = values(of.stride, 1), values(of.dilation, 1)
    padding = padded(args, of, kernel, dilation)
    output_padding = values(of.output_padding, 0) if transposed else (0,) * axes
    sizes = zip(x.shape[-axes:], kernel, stride, padding, dilation, output_padding, strict=True)
    axis_places = [
        (n - 1) * s - sum(p) + d * (k - 1) + o + 1
        if transposed
        else windows(n + sum(p), k, s, 0, d)
        for n, k, s, p, d, o in sizes
    ]
    groups = args.integer(of.groups, 1) if of.groups >= 0 else 1
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return (*x.shape[: -axes - 1], channels, *axis_places)


def padded(
    args: Arguments, of: Convolution, kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Return the padding before and after each axis; that of `same` keeps the axis's length."""
    text = (args.text(of.padding) or "").strip("'\"")
    if text == "same":
        return [(d * (k - 1), 0) for k, d in zip(kernel, dilation, strict=True)]
    if text == "valid":
        return [(0, 0)] * len(kernel)
    return [(p, p) for p in spread(args.integers(of.padding, (0,)), len(kernel))]


def places(shape: tuple[int, ...], axes: int) -> int:
    """Return batch times places of a tensor ([batch,] channels, *places) of *axes* places."""
    return math.prod(shape[: -axes - 1]) * math.prod(shape[-axes:])


def axes_of(x: Tensor, weight: Tensor) -> int:
    """Return the number of spatial axes. Raises: Unreadable if x and weight do not fit."""
    axes = len(weight.shape) - 2
    if axes < 1 or len(x.shape) - axes not in (1, 2):
        raise Unreadable("a convolution needs operands of other ranks")
    return axes


def forward(of: Convolution) -> Rule:
    """Return the rule for a convolution with its arguments at the positions of *of*."""

    def rule(args: Arguments) -> Tally:
        x, weight = args.first(2)
        axes, transposed = axes_of(x, weight), of.is_transposed(args)
        outputs = args.call.outputs or (
            Tensor(result_shape(args, of, x, weight, transposed), x.dtype),
        )
        applied = x.shape if transposed else outputs[0].shape
        flops = multiplied(places(applied, axes) * weight.size, x.dtype, args.tf32)
        added = args.tensors(of.bias, of.added)
        flops += computed(outputs[0].size, x.dtype, len(added) + of.relu)
        return tally(args, flops, (x, weight, *added), outputs)

    return rule


def gradients(args: Arguments, mask: int, transposed: bool = False) -> Tally:
    """Return the cost of the gradients of (dy, x, weight) that the flags at *mask* ask for."""
    dy, x, weight = args.first(3)
    axes = axes_of(x, weight)
    products = places(x.shape if transposed else dy.shape, axes) * weight.size
    wanted = args.flags(mask, 3)
    return weight_gradients(args, (dy, x, weight), products, dy.shape[-axes - 1], wanted)


def backward(args: Arguments) -> Tally:
    """Count the backward (dy, x, weight, [bias_sizes,] stride, padding, dilation, …, mask)."""
    first = 3 if args.name.endswith("_overrideable") else 4
    return gradients(args, first + 6, args.flag(first + 3))


def slow_backward(args: Arguments) -> Tally:
    """Return the cost of the backward (dy, x, weight, kernel, stride, padding, mask)."""
    return gradients(args, 6)


RULES: Rules = {
    **{name: ("convolution", forward(of)) for of, names in OPERATORS for name in names.split()},
    **named("convolution", backward, "convolution_backward convolution_backward_overrideable"),
    **named("convolution", slow_backward, "_slow_conv2d_backward"),
}
