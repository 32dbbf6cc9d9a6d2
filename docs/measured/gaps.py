"""Measure how the time of a call depends on the rest of the device before each sample.

Takes 300 windows of each call after each rest, in random order, and prints the median of the first
20 and of the last 100 samples, and the SM clock inside the last:

    python docs/measured/gaps.py
"""

import random
import statistics
import time

import torch

from gpuperf.measure.timers.window import Window

SAMPLES = 300


def matmul(n: int):
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: torch.mm(a, b)


def main() -> None:
    window = Window(torch.device("cuda", 0))
    x = torch.randn(1 << 26, device="cuda")
    q, k, v = (torch.randn(2, 16, 8192, 128, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
    calls = {
        "matmul 2048": (matmul(2048), (0, 0.0005, 0.002)),
        "matmul 4096": (matmul(4096), (0, 0.0005, 0.001, 0.002, 0.005)),
        "matmul 8192": (matmul(8192), (0, 0.002, 0.005, 0.01)),
        "attention 8192": (
            lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
            (0, 0.002, 0.005, 0.01),
        ),
        "sin of 256 MB": (lambda: torch.sin(x), (0, 0.0005, 0.002)),
    }
    for call, _ in calls.values():
        for _ in range(3):
            call()
        window.take(call)
    jobs = [(name, rest) for name, (_, rests) in calls.items() for rest in rests]
    random.shuffle(jobs)
    for name, rest in jobs:
        time.sleep(0.5)
        readings = [window.take(calls[name][0], rest, "cold") for _ in range(SAMPLES)]
        first, last = (
            statistics.median(reading.window_s for reading in part) * 1e6
            for part in (readings[:20], readings[-100:])
        )
        clock = statistics.median(r.clock_hz or 0.0 for r in readings[-100:]) / 1e6
        print(f"{name:15s} {rest * 1e3:4g} ms  {first:8.2f} {last:8.2f} µs  {clock:4.0f} MHz")


if __name__ == "__main__":
    main()
