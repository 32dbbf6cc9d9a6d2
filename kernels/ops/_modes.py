"""Build the call of an operation that has a gradient: its forward, its backward, or both.

A workload with a backward has an axis `mode`: the call of `fwd` returns the output, that of `bwd`
the gradients alone (of a forward that ran before), that of `fwd+bwd` the output and the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gpuperf import Axis

Tensors = Mapping[str, torch.Tensor]
Backward = Callable[[Any], tuple[torch.Tensor, ...]]
Forward = Callable[[], tuple[Any, Backward]]
Call = Callable[[], Any]

MODES = ("fwd", "bwd", "fwd+bwd")
MODE = Axis("mode", "fwd", "forward, backward alone, or both", choices=MODES)


def by_mode(
    mode: str,
    inputs: Tensors,
    forward: Forward,
    forward_only: Call,
    upstream: str | tuple[str, ...] = "dy",
) -> Call:
    """Return the call of *mode*.

    `forward()` returns the output and a function that maps the gradient of the output
    (`inputs[upstream]`) to those of the inputs; `forward_only()` returns the output alone. Of an
    output of several tensors *upstream* names the gradient of each.
    The call of `bwd` runs the forward again only after an input has changed.
    """
    if mode == "fwd":
        return forward_only
    names = (upstream,) if isinstance(upstream, str) else upstream
    gradients = tuple(inputs[name] for name in names)
    gradient = gradients[0] if isinstance(upstream, str) else gradients

    def both() -> tuple[torch.Tensor, ...]:
        output, backward = forward()
        outputs = output if isinstance(output, tuple) else (output,)
        return (*outputs, *backward(gradient))

    if mode == "fwd+bwd":
        return both
    last_versions: list[int] = []
    graph: list[Backward] = []

    def alone() -> tuple[torch.Tensor, ...]:
        versions = [tensor._version for name, tensor in inputs.items() if name not in names]
        if versions != last_versions:
            graph.clear()  # frees its memory before the new one: eager attention keeps all scores
            graph.append(forward()[1])
            last_versions[:] = versions
        return graph[0](gradient)

    return alone


def of_mode(mode: str, forward: int, backward: int) -> int:
    """Return the count of *mode*, given those of forward and of backward."""
    return {"fwd": forward, "bwd": backward, "fwd+bwd": forward + backward}[mode]


def autograd(function: Callable[..., Any], inputs: Tensors, names: Sequence[str]) -> Forward:
    """Return the forward of *function*(*inputs), with autograd's gradient of *names*."""

    def forward() -> tuple[Any, Backward]:
        leaves = {name: inputs[name].detach().requires_grad_() for name in names}
        with torch.enable_grad():
            output = function(*leaves.values())

        def backward(gradient: Any) -> tuple[torch.Tensor, ...]:
            return tuple(torch.autograd.grad(output, [*leaves.values()], gradient, True))

        if isinstance(output, tuple):
            return tuple(tensor.detach() for tensor in output), backward
        return output.detach(), backward

    return forward


def by_torch(
    mode: str,
    function: Callable[..., torch.Tensor],
    inputs: Tensors,
    names: Sequence[str],
    upstream: str = "dy",
) -> Call:
    """Return the call of *function*(*inputs) in *mode*, with its gradient by autograd."""

    def forward_only() -> torch.Tensor:
        with torch.no_grad():
            return function(*(inputs[name] for name in names))

    return by_mode(mode, inputs, autograd(function, inputs, names), forward_only, upstream)
