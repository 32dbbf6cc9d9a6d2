"""Convolutions: 2 FLOP for every element of the weight at every place that it is laid on.

    forward      2 · batch · places · elements of the weight (c_out, c_in/groups, *kernel)
    transposed   the same, with places of the input and a weight (c_in, c_out/groups, *kernel)
    backward     the same again for dx and for dweight, and a sum for dbias: those asked for

What lies over the padding is counted, as everybody does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuperf.model.aten import Tensor
from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.shapes import spread, windows
from gpuperf.profile.cost.tally import Rule, Rules, Tally, computed, moved, multiplied, named


@dataclass(frozen=True)
class Signature:
    """Positions of arguments; −1: there is none. `transposed`: where that is said, or of all."""

    stride: int
    padding: int
    dilation: int = -1
    groups: int = -1
    bias: int = -1
    transposed: int | bool = False
    output_padding: int = -1
    added: int = -1  # a tensor that is added to the result
    relu: bool = False


FULL = Signature(3, 4, 5, 8, bias=2, transposed=6, output_padding=7)
PLAIN = Signature(3, 4, 5, 6, bias=2)
TURNED = Signature(3, 4, 7, 6, bias=2, transposed=True, output_padding=5)
MKLDNN = Signature(4, 3, 5, 6, bias=2)
SLOW = Signature(4, 5, 6, bias=3)
SIGNATURES = {
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), FULL),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), PLAIN),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), TURNED),
    "cudnn_convolution": Signature(3, 2, 4, 5),
    "cudnn_convolution_transpose": Signature(4, 2, 5, 6, transposed=True, output_padding=3),
    "miopen_convolution_transpose": Signature(
        5, 3, 6, 7, bias=2, transposed=True, output_padding=4
    ),
    **dict.fromkeys(
        ("cudnn_convolution_relu", "miopen_convolution_relu"),
        Signature(3, 4, 5, 6, bias=2, relu=True),
    ),
    **dict.fromkeys(
        ("cudnn_convolution_add_relu", "miopen_convolution_add_relu"),
        Signature(5, 6, 7, 8, bias=4, added=2, relu=True),
    ),
    **dict.fromkeys(
        ("mkldnn_convolution", "miopen_convolution", "miopen_depthwise_convolution"), MKLDNN
    ),
    **dict.fromkeys(
        (
            "_slow_conv2d_forward",
            "thnn_conv2d",
            "slow_conv3d_forward",
            "slow_conv3d",
            "_conv_depthwise2d",
            "conv_depthwise3d",
            "slow_conv_dilated2d",
            "slow_conv_dilated3d",
        ),
        SLOW,
    ),
    **dict.fromkeys(
        ("slow_conv_transpose2d", "slow_conv_transpose3d"),
        Signature(4, 5, 7, bias=3, transposed=True, output_padding=6),
    ),
}


def is_transposed(args: Arguments, of: Signature) -> bool:
    """Raises: Unreadable where nobody knows."""
    if isinstance(of.transposed, bool):
        return of.transposed
    return args.flag(of.transposed)


def result_shape(
    args: Arguments, of: Signature, x: Tensor, weight: Tensor, transposed: bool
) -> tuple[int, ...]:
    """(batch, c_out, *places); the batch may lack. Raises: Unreadable."""
    kernel = weight.shape[2:]
    axes = len(kernel)

    def values(at: int, default: int) -> tuple[int, ...]:
        return spread(args.integers(at, (default,)) if at >= 0 else (default,), axes)

    stride, dilation = values(of.stride, 1), values(of.dilation, 1)
    padding = padded(args, of, kernel, dilation)
    # Only transposed ones have anything there.
    more = values(of.output_padding, 0) if transposed else (0,) * axes
    places = [
        (n - 1) * s - sum(p) + d * (k - 1) + o + 1
        if transposed
        else windows(n + sum(p), k, s, 0, d)
        for n, k, s, p, d, o in zip(
            x.shape[-axes:], kernel, stride, padding, dilation, more, strict=True
        )
    ]
    groups = args.integer(of.groups, 1) if of.groups >= 0 else 1
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return (*x.shape[: -axes - 1], channels, *places)


def padded(
    args: Arguments, of: Signature, kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> list[tuple[int, int]]:
    """What is laid around each axis, before and after; `same` keeps its length."""
    text = (args.text(of.padding) or "").strip("'\"")
    if text == "same":
        return [(d * (k - 1), 0) for k, d in zip(kernel, dilation, strict=True)]
    if text == "valid":
        return [(0, 0)] * len(kernel)
    return [(p, p) for p in spread(args.integers(of.padding, (0,)), len(kernel))]


def places(shape: tuple[int, ...], axes: int) -> int:
    """Batch times places of a tensor (batch, channels, *places)."""
    return math.prod(shape[: -axes - 1]) * math.prod(shape[-axes:])


def check(x: Tensor, weight: Tensor) -> int:
    """How many axes. Raises: Unreadable where these are no operands of a convolution."""
    axes = len(weight.shape) - 2
    if axes < 1 or len(x.shape) - axes not in (1, 2):
        raise Unreadable("no convolution is of these ranks")
    return axes


def forward(of: Signature) -> Rule:
    """The rule of a convolution with arguments as *of* says."""

    def rule(args: Arguments) -> Tally:
        x, weight = args.tensor(0), args.tensor(1)
        axes, transposed = check(x, weight), is_transposed(args, of)
        outputs = args.call.outputs or (
            Tensor(result_shape(args, of, x, weight, transposed), x.dtype),
        )
        laid = x.shape if transposed else outputs[0].shape
        flops = multiplied(places(laid, axes) * weight.size, x.dtype, args.tf32)
        more = [t for at in (of.bias, of.added) if at >= 0 for t in args.tensors(at)]
        if each := len(more) + of.relu:
            flops += computed(outputs[0].size, x.dtype, each)
        return Tally(flops, moved((x, weight, *more), outputs))

    return rule


def gradients(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    transposed: bool,
    asked: tuple[bool, ...],
    args: Arguments,
) -> Tally:
    """Of *dy*: dx, dweight and dbias, those *asked* for."""
    axes = check(x, weight)
    dx, dweight, dbias = asked
    each = places(x.shape if transposed else dy.shape, axes) * weight.size
    flops = multiplied(each * (dx + dweight), x.dtype, args.tf32)
    flops += computed(dy.size, dy.dtype, int(dbias))
    read = (dy, *((weight,) if dx else ()), *((x,) if dweight else ()))
    channels = dy.shape[-axes - 1]
    made = (Tensor(x.shape, x.dtype), Tensor(weight.shape, x.dtype), Tensor((channels,), x.dtype))
    written = [tensor for tensor, wanted in zip(made, asked, strict=True) if wanted]
    return Tally(flops, moved(read if any(asked) else (), args.call.outputs or written))


def backward(args: Arguments) -> Tally:
    """(dy, x, weight, [bias_sizes,] stride, padding, dilation, transposed, …, output_mask)."""
    dy, x, weight = (args.tensor(at) for at in range(3))
    first = 3 if args.name.endswith("_overrideable") else 4
    asked = args.flags(first + 6, 3)
    return gradients(dy, x, weight, args.flag(first + 3), asked, args)


def slow_backward(args: Arguments) -> Tally:
    """(dy, x, weight, kernel, stride, padding, output_mask)."""
    dy, x, weight = (args.tensor(at) for at in range(3))
    return gradients(dy, x, weight, False, args.flags(6, 3), args)


RULES: Rules = {
    **{name: ("convolution", forward(of)) for name, of in SIGNATURES.items()},
    **named("convolution", backward, "convolution_backward convolution_backward_overrideable"),
    **named("convolution", slow_backward, "_slow_conv2d_backward"),
}
