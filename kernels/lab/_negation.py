"""Negate a tensor: an operator of one kernel, whose calls in a row are timed by the host's clock.

Tensors alternate in a ring of four L2s, so that the device's time is that of DRAM at every size at
which it can bind. The usual timer, which hides the host, times one call; the reading is the wall
time of 512 calls, over their number.

- `plain`: torch.neg(x); `out`: torch.neg(x, out=y); `inference`: calls in torch.inference_mode().
- `compiled`: torch.compile, a call for each operator.
- `graph`: 64 operators in a CUDA graph, a replay for all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from gpuperf.lab_experiments._host_time import seconds

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.jit import compiled, lacks_compiler

Inputs = Mapping[str, torch.Tensor]
RING_BYTES, ROW, ROWS, REPEATS = 2**28, 64, 8, 5
SIZE = 4  # bytes of an element, which is read and written


def negate(x: torch.Tensor) -> torch.Tensor:
    """Return −x, the reference."""
    return torch.neg(x)


class Row:
    """One call of an operator, and the wall time of a call among many as its reading."""

    def __init__(self, name: str, x: torch.Tensor) -> None:
        self._name, self._x = name, x
        self._operator = compiled(negate) if name == "compiled" else negate
        self._replay = self._captured(lambda: negate(x)) if name == "graph" else None

    def __call__(self) -> torch.Tensor:
        return self._replay() if self._replay else self._operator(self._x)

    def readings(self) -> dict[str, float]:
        """Return the seconds of a call, and the graphs that torch.compile makes of it."""
        row, device = self._row(), self._x.device
        with torch.inference_mode(self._name == "inference"):
            run = self._captured(row) if self._name == "graph" else row
            run()
            times = [seconds(run, ROWS, device) / (ROWS * ROW) for _ in range(REPEATS)]
        found = torch._dynamo.explain(negate)(self._x) if self._name == "compiled" else None
        graphs = {"graphs": found.graph_count, "breaks": found.graph_break_count} if found else {}
        return {"call_s": statistics.median(times), **graphs}

    def _row(self) -> Callable[[], None]:
        """Return ROW calls, each on the next tensor of a ring and with a result of its own."""
        ring = min(ROW, max(1, RING_BYTES // (2 * SIZE * self._x.numel())))
        ring = 2 ** (ring.bit_length() - 1)
        xs = [self._x.clone() for _ in range(ring)]
        ys: list[Any] = [torch.empty_like(self._x) for _ in xs]
        into = self._name == "out"

        def row() -> None:
            for _ in range(ROW // ring):
                for i, x in enumerate(xs):
                    ys[i] = torch.neg(x, out=ys[i]) if into else self._operator(x)

        return row

    @staticmethod
    def _captured(function: Callable[[], Any]) -> Callable[[], Any]:
        function()  # loads the kernels
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = function()
        return lambda: (graph.replay(), y)[1]


def build(name: str, inputs: Inputs, point: Point, options: object) -> Row:
    return Row(name, inputs["x"])


def on_cuda(point: Point, device: Any) -> str | None:
    """Return why CUDA graphs are not available, or None where they are."""
    return None if device.kind == "cuda" else "graphs need an NVIDIA GPU"


NEGATION = Workload(
    name="negation",
    summary="−x, and the wall time of many calls in a row",
    formula="n FLOP; 2·n·s bytes",
    axes=(
        Axis("n", 2**20, "elements", main=True),
        Axis("dtype", "fp32", "dtype of x and y", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=lambda inputs, point: -inputs["x"].double(),
    cost=lambda point: Cost(
        (Flops(point.n, "elementwise", "fp32"),), (Bytes(SIZE * point.n, SIZE * point.n),)
    ),
    implementations=(
        Implementation("plain", partial(build, "plain"), "torch.neg"),
        Implementation("out", partial(build, "out"), "into a given tensor"),
        Implementation("inference", partial(build, "inference"), "in inference mode"),
        Implementation("compiled", partial(build, "compiled"), "torch.compile", lacks_compiler),
        Implementation("graph", partial(build, "graph"), "a CUDA graph of 64", on_cuda),
    ),
    roundings=lambda point: 1,
)
