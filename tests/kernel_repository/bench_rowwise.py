"""Print the milliseconds of each kernel, as their author does."""

import time

import rowwise
import torch


def main():
    x, weight = torch.randn(64, 512), torch.ones(512)
    for name, call in {
        "rms_norm": lambda: rowwise.rms_norm(x, weight),
        "swiglu": lambda: rowwise.swiglu(x, x),
    }.items():
        start = time.perf_counter()
        for _ in range(10):
            call()
        print(f"{name}: {(time.perf_counter() - start) * 100:.3f} ms")


if __name__ == "__main__":
    main()
