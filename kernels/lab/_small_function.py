"""Call the notes' small function from its first call on: what is paid once is part of the time.

y = sin y + cos y, ten times, of 1 Mi elements: 30 kernels of torch. A sample of the usual timer is
a warm call; the readings are those of first calls, in a process of their own (`_first_calls.py`).

- `eager`: torch, kernel by kernel.
- `compile`: torch.compile, compiled in the first call.
- `reduce_overhead`: the same in a CUDA graph. torch compiles and warms up in the first call, and
  records in the *second* (pytorch/pytorch, issue 120309).
- `captured`: the eager kernels in a CUDA graph, captured by hand in the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from gpuperf.lab_experiments._first_calls import MAKERS, STEADY, TURNS, first_calls, small

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.jit import lacks_compiler
from gpuperf.theory.graph_amortisation import speedup

Inputs = Mapping[str, torch.Tensor]


class FirstCalls:
    """A warm call, whose readings are of the `calls` first calls after `warmups` others."""

    def __init__(self, name: str, x: torch.Tensor, point: Point) -> None:
        self._name, self._x, self._point = name, x, point
        self._function = MAKERS[name]()

    def __call__(self) -> torch.Tensor:
        return self._function(self._x)

    def readings(self) -> dict[str, float]:
        """Return the speed-up over eager calls, that over what the law makes of the time of the
        first call and of late ones, these times, and what torch left out. Raises: CannotMeasure."""
        point, device = self._point, str(self._x.device)
        seen = first_calls(self._name, point.warmups, point.n, point.calls, device)
        marks = {int(mark): float(taken) for mark, taken in seen["marks"].items()}
        start, *_, end = sorted(marks)[-STEADY:]
        each_s, first_s = float(seen["eager_s"]), marks[min(marks)] / min(marks)
        steady_s = (marks[end] - marks[start]) / (end - start)
        law = speedup(point.calls, each_s, max(0.0, first_s - steady_s), steady_s)
        gain = point.calls * each_s / marks[point.calls]
        return {
            "speedup": gain,
            "of_law": gain / law,
            "eager_s": each_s,
            "first_s": first_s,
            "steady_s": steady_s,
            "graph_breaks": seen["graph_breaks"],
            "cudagraph_skips": seen["cudagraph_skips"],
        }


def build(name: str, inputs: Inputs, point: Point, options: object) -> FirstCalls:
    return FirstCalls(name, inputs["x"], point)


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
        Implementation("eager", partial(build, "eager"), "torch, 30 kernels"),
        Implementation("compile", partial(build, "compile"), "torch.compile", lacks_compiler),
        Implementation("reduce_overhead", partial(build, "reduce_overhead"), "graphs", on_cuda),
        Implementation("captured", partial(build, "captured"), "captured by hand", on_cuda),
    ),
    roundings=lambda point: 3 * TURNS,
)
