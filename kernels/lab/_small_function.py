"""Call the notes' small function from its first call on: what is paid once is part of the time.

y = sin y + cos y, ten times, of 1 Mi elements: 30 kernels of torch. A sample of the usual timer is
a warm call; the readings are those of first calls, after torch has forgotten what it compiled.

- `eager`: torch, kernel by kernel.
- `compile`: torch.compile, compiled in the first call.
- `reduce_overhead`: the same in a CUDA graph. torch compiles and warms up in the first call, and
  records in the *second* (pytorch/pytorch, issue 120309).
- `captured`: the eager kernels in a CUDA graph, captured by hand in the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.lab_experiments._host_time import FirstCalls, Function

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.jit import compiled, lacks_compiler

Inputs = Mapping[str, torch.Tensor]
TURNS = 10  # of the function


def small(y: torch.Tensor) -> torch.Tensor:
    """Return sin y + cos y, ten times over."""
    for _ in range(TURNS):
        y = torch.sin(y) + torch.cos(y)
    return y


class Captured:
    """The eager kernels, captured in the first call and replayed in every call."""

    def __init__(self) -> None:
        self._graph: Any = None
        self._y: Any = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._graph is None:
            small(x)  # loads the kernels, which a capture does not allow
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._y = small(x)
            self._graph = graph
        self._graph.replay()
        return self._y


def anew(mode: str | None) -> Callable[[], Function]:
    """Return what compiles the function in *mode* after torch has forgotten it, and its graphs."""

    def make() -> Function:
        torch._dynamo.reset()
        return compiled(small, mode)

    return make


def build(make: Callable[[], Function]) -> Callable[[Inputs, Point, object], FirstCalls]:
    return lambda inputs, point, options: FirstCalls(make, small, inputs["x"], point)


def on_cuda(point: Point, device: Any) -> str | None:
    """Return why CUDA graphs are not available, or None where they are."""
    return lacks_compiler(point, device) if device.kind == "cuda" else "graphs need an NVIDIA GPU"


def cost(point: Point) -> Cost:
    """Return the special functions and sums, and x read and y written once."""
    special = (Flops(TURNS * point.n, "special", "fp32", function=f) for f in ("sin", "cos"))
    flops = (*special, Flops(TURNS * point.n, "elementwise", "fp32"))
    return Cost(flops, (Bytes(4 * point.n, 4 * point.n),))


SMALL_FUNCTION = Workload(
    name="small_function",
    summary="sin y + cos y ten times, and the cost of its first calls",
    formula="20·n special functions + 10·n FLOP; 2·n·s bytes",
    axes=(
        Axis("calls", 100, "calls whose time is read", main=True),
        Axis("warmups", 1, "calls before them"),
        Axis("n", 2**20, "elements"),
        Axis("dtype", "fp32", "dtype of x and y", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=lambda inputs, point: small(inputs["x"].double()),
    cost=cost,
    implementations=(
        Implementation("eager", build(lambda: small), "torch, 30 kernels"),
        Implementation("compile", build(anew(None)), "torch.compile", lacks_compiler),
        Implementation("reduce_overhead", build(anew("reduce-overhead")), "with graphs", on_cuda),
        Implementation("captured", build(Captured), "captured by hand", on_cuda),
    ),
    roundings=lambda point: 3 * TURNS,
)
