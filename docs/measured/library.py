"""Compare `gpuperf.measure` with CUPTI, with the command line and with Triton's `do_bench`.

`python docs/measured/library.py > docs/measured/library.txt` runs on a GPU for 3 minutes: the
thirteen calls whose scatter docs/measured/README.md lists, and six others, each by
`gpuperf.measure` in this process, by CUPTI's records of its kernels (torch.profiler, in the median
of 60 calls that each follow a rest and a flush of the L2), and by `triton.testing.do_bench`;
copies, matmuls and sin²x + cos²x also by `gpuperf roofline`. `busy` is the sum of the records of a
call, `span` the time from the start of the first to the end of the last. They are the same for one
kernel. Tracing lengthens the pauses between several (a memset is one), so that the call itself
takes a time between both. `wall` is how long `gpuperf.measure` took. `library.py cpu` tries the
script on a CPU.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

began = time.perf_counter()
import gpuperf  # noqa: E402

CPU = sys.argv[1:] == ["cpu"]
DEVICE = "cpu" if CPU else "cuda"
CALLS = 3 if CPU else 60
REST_S = 0.002  # as `gpuperf.measure` rests before a sample
SHRINK = 16 if CPU else 1

Call = Callable[[], Any]


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return random numbers; on a CPU the first axis is short."""
    return torch.randn(max(1, shape[0] // SHRINK), *shape[1:], device=DEVICE).to(dtype)


def matmul(n: int) -> Call:
    """Return the product of two square matrices in bf16."""
    a, b = tensor(n, n // SHRINK), tensor(n, n // SHRINK)
    return lambda: torch.mm(a, b)


def copy(n: int) -> Call:
    """Return a copy of *n* numbers in fp32 to a tensor that exists."""
    x = tensor(n, dtype=torch.float32)
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


def triad(n: int) -> Call:
    """Return y = a + 3·b of *n* numbers in fp32."""
    a, b = tensor(n, dtype=torch.float32), tensor(n, dtype=torch.float32)
    y = torch.empty_like(a)
    return lambda: torch.add(a, b, alpha=3.0, out=y)


def sincos(n: int) -> Call:
    """Return sin²x + cos²x of *n* numbers in fp32, in five operations."""
    x, one = tensor(n, dtype=torch.float32), torch.ones(1, device=DEVICE)

    def call() -> torch.Tensor:
        sine, cosine = torch.sin(x), torch.cos(x)
        return torch.addcmul(sine * sine, cosine * cosine, one)

    return call


def attention(length: int) -> Call:
    """Return causal attention by torch's own kernel, 16 heads of 128."""
    q, k, v = (tensor(16, length // SHRINK, 128)[None] for _ in range(3))
    return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def naive(length: int) -> Call:
    """Return attention in three operations."""
    q, k, v = (tensor(16, length // SHRINK, 128) for _ in range(3))
    return lambda: torch.softmax(q @ k.transpose(-1, -2), -1) @ v


def calls() -> dict[str, Call]:
    """Return the calls by name: those of the table of scatter, then others."""
    rows, small = tensor(8192, 8192), tensor(256, dtype=torch.float32)
    return {
        **{f"copy {n}": copy(n) for n in (2**10, 2**20, 2**22, 2**26)},
        f"triad {2**24}": triad(2**24),
        **{f"matmul {n}": matmul(n) for n in (128, 512, 1024, 2048, 4096, 8192)},
        **{f"sincos {n}": sincos(n) for n in (2**20, 2**22)},
        "add 1 kB": lambda: small + small,
        "softmax 8192": lambda: torch.softmax(rows, -1),
        "layernorm 8192": lambda: functional.layer_norm(rows, rows.shape[-1:]),
        "sdpa 1024": attention(1024),
        "sdpa 8192": attention(8192),
        "naive 2048": naive(2048),
    }


def cupti_us(call: Call) -> tuple[float, float]:
    """Return the medians of a call's busy time and of its span, in microseconds."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    flush = torch.zeros(64 << 20, dtype=torch.int32, device=DEVICE)
    call()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(CALLS):
            time.sleep(REST_S)
            flush.max()
            torch.cuda._sleep(400_000)  # 0.2 ms on the device: everything is queued by then
            call()
            torch.cuda._sleep(100)  # marks the end of the call's kernels
            torch.cuda.synchronize()
    kernels = [e for e in profiler.events() if e.device_type == DeviceType.CUDA]
    kernels.sort(key=lambda e: e.time_range.start)
    spans: list[list[Any]] = []
    marks = 0
    for kernel in kernels:
        if "spin" in kernel.name:
            marks += 1
            spans += [[]] if marks % 2 else []
        elif marks % 2:
            spans[-1].append(kernel)
    busy = (sum(kernel.time_range.elapsed_us() for kernel in of) for of in spans if of)
    span = (of[-1].time_range.end - of[0].time_range.start for of in spans if of)
    return statistics.median(busy), statistics.median(span)


def roofline_us() -> dict[str, float]:
    """Return the medians of the command line for copies, matmuls and sin²x + cos²x."""
    found: dict[str, float] = {}
    for words in (
        "copy --sizes 1024,1M,4M,64M --impl torch --dtype fp32",
        "matmul --sizes 128,512:8192 --impl torch --dtype bf16",
        "sincos --sizes 1M,4M --impl eager --dtype fp32",
    ):
        command = [sys.executable, "-m", "gpuperf", "roofline", *words.split()]
        command += ["--counters", "off", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for row in json.loads(done.stdout)["rows"]:
            found[f"{words.split()[0]} {row['point']['n']}"] = 1e6 * row["time_s"]
    return found


def off(value: float, measured: float) -> str:
    """Return how far *value* is from *measured*, in percent."""
    return f"{(value / measured - 1) * 100:+8.2f}"


def main() -> None:
    """Print a line for each call, and how long the first and the other measurements took."""
    print(f"import gpuperf: {time.perf_counter() - began:.2f} s")
    testing = __import__("triton.testing", fromlist=["do_bench"])
    command = {} if CPU else roofline_us()
    columns = (
        ("measure µs", 12),
        ("wall s", 7),
        ("busy %", 8),
        ("span %", 8),
        ("cli %", 8),
        ("do_bench %", 10),
    )
    print(f"{'call':16} " + " ".join(f"{name:>{width}}" for name, width in columns))
    for name, call in calls().items():
        start = time.perf_counter()
        measured = 1e6 * gpuperf.measure(call, name=name).time_s
        wall = time.perf_counter() - start
        line = f"{name:16} {measured:12.3f} {wall:7.2f}"
        if not CPU:
            busy, span = cupti_us(call)
            line += f" {off(busy, measured)} {off(span, measured)}"
            line += f" {off(command[name], measured) if name in command else '':>8}"
            bench = 1e3 * testing.do_bench(call, return_mode="median")
            line += f" {off(bench, measured):>10}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
