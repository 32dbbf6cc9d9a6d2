"""Forward, backward, or both, of an operation that has a gradient.

A workload with a backward has an axis `mode`: `fwd` returns the output, `bwd` the gradients alone
(over a forward that was made before), `fwd+bwd` the output and the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gpuperf import Axis

Tensors = Mapping[str, torch.Tensor]
Backward = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]
Forward = Callable[[], tuple[torch.Tensor, Backward]]
Call = Callable[[], Any]

MODES = ("fwd", "bwd", "fwd+bwd")
MODE = Axis("mode", "fwd", "forward, backward alone, or both", choices=MODES)


def by_mode(
    mode: str, inputs: Tensors, forward: Forward, forward_only: Call, upstream: str = "dy"
) -> Call:
    """The call of *mode*. `forward()` returns the output and a function from its gradient
    (`inputs[upstream]`) to those of the inputs; `forward_only()` the output, keeping nothing.

    In `bwd` the forward is made anew only after an input has changed.
    """
    if mode == "fwd":
        return forward_only
    gradient = inputs[upstream]

    def both() -> tuple[torch.Tensor, ...]:
        output, backward = forward()
        return (output, *backward(gradient))

    if mode == "fwd+bwd":
        return both
    seen: list[int] = []
    kept: list[Backward] = []

    def alone() -> tuple[torch.Tensor, ...]:
        versions = [tensor._version for name, tensor in inputs.items() if name != upstream]
        if versions != seen:
            kept.clear()  # not beside the new one: eager attention keeps all scores
            kept.append(forward()[1])
            seen[:] = versions
        return kept[0](gradient)

    return alone


def of_mode(mode: str, forward: int, backward: int) -> int:
    """What *mode* has of a count of each."""
    return {"fwd": forward, "bwd": backward, "fwd+bwd": forward + backward}[mode]


def autograd(
    function: Callable[..., torch.Tensor], inputs: Tensors, names: Sequence[str]
) -> Forward:
    """The forward of *function*(*inputs), with torch's own gradient of those in *names*."""

    def forward() -> tuple[torch.Tensor, Backward]:
        leaves = {name: inputs[name].detach().requires_grad_() for name in names}
        with torch.enable_grad():
            output = function(*leaves.values())

        def backward(gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(torch.autograd.grad(output, [*leaves.values()], gradient, True))

        return output.detach(), backward

    return forward


def by_torch(
    mode: str,
    function: Callable[..., torch.Tensor],
    inputs: Tensors,
    names: Sequence[str],
    upstream: str = "dy",
) -> Call:
    """The call of *mode* of *function*(*inputs), its gradient by torch."""

    def forward_only() -> torch.Tensor:
        with torch.no_grad():
            return function(*(inputs[name] for name in names))

    return by_mode(mode, inputs, autograd(function, inputs, names), forward_only, upstream)
