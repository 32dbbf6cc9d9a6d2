"""Compare the wall time of gpuperf and nvbench for the same calls, each with its own stopping rule.

gpuperf stops when the 95 % interval of the median is ± 1 %. nvbench (cuda-bench) keeps its
defaults: it stops when the standard deviation of the samples is under 0.5 % or no longer falls,
after 0.5 s at the earliest.

    python docs/measured/nvbench_wall.py
"""

import time

import torch

from gpuperf.measure.nvbench import nvbench_means
from gpuperf.measure.stopwatch import open_stopwatch
from gpuperf.model.contract import Contract
from gpuperf.run.plan import GPU_DUTY, GPU_GAP_S


def matmul(n: int):
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: torch.mm(a, b)


def add(n: int):
    a, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    return lambda: torch.add(a, b)


def main() -> None:
    calls = {f"add {n}": add(n) for n in (2**10, 2**18, 2**20, 2**24, 2**26)}
    calls |= {f"matmul {n}": matmul(n) for n in (128, 512, 1024, 2048, 4096, 8192)}
    watch = open_stopwatch("blocked", torch.device("cuda", 0))
    contract = Contract("blocked", gap_s=GPU_GAP_S, duty=GPU_DUTY)
    ours = {}
    start = time.perf_counter()
    for name, call in calls.items():
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        before = time.perf_counter()
        call()
        torch.cuda.synchronize()
        timing = watch.take(call, contract, time.perf_counter() - before, fits_cache=False)
        ours[name] = timing.times[timing.primary]
    ours_s = time.perf_counter() - start
    start = time.perf_counter()
    theirs = nvbench_means(list(calls.values()))
    theirs_s = time.perf_counter() - start
    for (name, samples), mean in zip(ours.items(), theirs, strict=True):
        print(
            f"{name:14s} gpuperf {samples.median_s * 1e6:9.3f} µs ± {samples.precision * 100:.2f} %"
            f"   nvbench {mean * 1e6:9.3f} µs"
        )
    print(f"{'all':14s} gpuperf {ours_s:.1f} s, nvbench {theirs_s:.1f} s")


if __name__ == "__main__":
    main()
