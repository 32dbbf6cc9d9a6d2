"""Print the milliseconds of each kernel, as their author does."""

import rowwise
import torch
import triton
from triton.testing import do_bench

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS = 8192 if DEVICE == "cuda" else 64


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["n"],
        x_vals=[512, 1024],
        line_arg="kernel",
        line_vals=["rms_norm", "swiglu"],
        line_names=["RMS norm", "SwiGLU"],
        plot_name="rowwise",
        args={},
    )
)
def benchmark(n, kernel):
    x, weight = torch.randn(ROWS, n, device=DEVICE), torch.ones(n, device=DEVICE)
    other = weight if kernel == "rms_norm" else x
    return do_bench(lambda: getattr(rowwise, kernel)(x, other))


if __name__ == "__main__":
    benchmark.run(print_data=True)
