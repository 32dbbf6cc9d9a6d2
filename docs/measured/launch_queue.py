"""Measure what makes short calls of several kernels alternate between two times, and what ends it.

`python docs/measured/launch_queue.py > docs/measured/launch_queue.txt` runs on a GPU for 20 s. It
takes 120 windows in a row around a call of five kernels of 4 MB each, under several conditions, and
prints the median, the distance between even and odd windows, and the correlation of successive
windows.
"""

import statistics
from collections.abc import Callable
from typing import Any

import torch

from gpuperf.measure.timers import window
from gpuperf.measure.timers.window import open_window
from gpuperf.model.samples import correlation

DEVICE = torch.device("cuda", 0)
X = torch.randn(2**20, device=DEVICE)
OUT = [torch.empty_like(X) for _ in range(16)]
WINDOW = open_window(DEVICE)


def several(count: int) -> Callable[[], Any]:
    """Return a call of *count* kernels."""

    def call() -> None:
        for out in OUT[:count]:
            torch.add(X, 1.0, out=out)

    return call


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """Capture *call* as a CUDA graph, and return its replay."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def show(name: str, seconds: list[float]) -> None:
    """Print the line of one condition."""
    median = statistics.median(seconds)
    apart = abs(statistics.median(seconds[::2]) - statistics.median(seconds[1::2]))
    print(
        f"{name:44s} {median * 1e6:7.2f} µs   apart {apart * 1e9:5.0f} ns "
        f"({apart / median * 100:4.1f} %)   correlation {correlation(tuple(seconds)):+.2f}"
    )


def windows(call: Callable[[], Any], cache: str = "cold", count: int = 120) -> list[float]:
    """Return the seconds of *count* windows in a row, with 2 ms of rest before each."""
    call()
    torch.cuda.synchronize()
    return [WINDOW.take(call, 0.002, cache).window_s for _ in range(count)]  # type: ignore[arg-type]


def main() -> None:
    """Print the line of each condition."""
    five = several(5)
    windows(five)
    default = window.OPEN_CYCLES
    for cycles in (1000, default, 20_000, 200_000):
        window.OPEN_CYCLES = cycles
        show(f"first stamp spins for {cycles} cycles", windows(five))
    window.OPEN_CYCLES = default
    show("hot cache, no flush", windows(five, "hot"))
    show("as a CUDA graph", windows(captured(five)))
    flush = WINDOW.flush

    def flush_and_wait(cache: Any) -> None:
        flush(cache)
        torch.cuda.synchronize()

    WINDOW.flush = flush_and_wait  # type: ignore[method-assign]
    show("the host waits for the flush", windows(five))
    WINDOW.flush = flush  # type: ignore[method-assign]
    for count in (1, 2, 3, 5, 8, 16):
        show(f"{count} kernels", windows(several(count)))
    for count in (2, 3, 5, 8, 16):
        call = several(count)
        means = [
            statistics.fmean(r.window_s for r in WINDOW.take_period(call, count, 0.002, "cold"))
            for _ in range(40)
        ]
        show(f"{count} kernels, means over a period of four", means)


if __name__ == "__main__":
    main()
