"""Time the first calls of a small function in a process that has compiled and recorded nothing yet.

A later recording of a process is many times quicker than its first. So `first_calls` runs this file
as a program, which prints the times as JSON, once for each implementation and number of warm-ups.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.jit import compiled

Function = Callable[[torch.Tensor], torch.Tensor]
TURNS = 10  # of the function
MARKS = (1, 10, 30, 100, 300, 1000, 3000, 10_000)  # calls after which the clock is read
STEADY = 3  # marks of the end, between which calls are steady
REPEATS, FEW, DEADLINE_S = 5, 100, 120.0


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


MAKERS: dict[str, Callable[[], Function]] = {
    "eager": lambda: small,
    "compile": lambda: compiled(small),
    "reduce_overhead": lambda: compiled(small, "reduce-overhead"),
    "captured": Captured,
}


@cache
def first_calls(implementation: str, warmups: int, n: int, calls: int, device: str) -> Any:
    """Return `marks` (seconds until each number of calls), `eager_s` of an eager call, and the
    counts `graph_breaks` and `cudagraph_skips`, from a process of its own. Raises: CannotMeasure.

    On a CPU, which has no graphs, they are of this process. All *calls* in MARKS have one process.
    """
    if device == "cpu":
        return observe(implementation, warmups, n, calls, device)
    if calls in MARKS[:-1]:
        return first_calls(implementation, warmups, n, MARKS[-1], device)
    words = [implementation, str(warmups), str(n), str(calls), device]
    command = [sys.executable, "-m", __name__, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        raise CannotMeasure(f"the first calls took over {DEADLINE_S:g} s") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise CannotMeasure(f"the process of the first calls failed: {reason}")
    return json.loads(done.stdout.splitlines()[-1])


def observe(implementation: str, warmups: int, n: int, calls: int, device: str) -> dict[str, Any]:
    """Time the first calls here."""
    from torch._dynamo.utils import counters  # which takes a second to import

    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    x = torch.randn(n, device=device)

    def until(function: Function, marks: set[int]) -> dict[int, float]:
        wait()
        taken, began = {}, time.perf_counter()
        for call in range(1, max(marks) + 1):
            function(x)  # its result is dropped: one that lives on would prevent a replay
            if call in marks:
                wait()
                taken[call] = time.perf_counter() - began
        return taken

    small(x)
    each_s = statistics.median(until(small, {FEW})[FEW] / FEW for _ in range(REPEATS))
    counters.clear()
    function = MAKERS[implementation]()
    for _ in range(warmups):
        function(x)
    marks = {mark for mark in MARKS if mark <= STEADY * calls} | {calls, max(calls, 2)}
    return {
        "eager_s": each_s,
        "marks": {str(mark): taken for mark, taken in until(function, marks).items()},
        "graph_breaks": float(sum(counters["graph_break"].values())),
        "cudagraph_skips": float(counters["inductor"]["cudagraph_skips"]),
    }


if __name__ == "__main__":
    _name, _warmups, _n, _calls, _device = sys.argv[1:]
    print(json.dumps(observe(_name, int(_warmups), int(_n), int(_calls), _device)))
