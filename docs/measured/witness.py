"""Time calls in two ways that share no code with gpuperf, as witnesses of its times.

Each sample follows 10 ms of rest, with a cold L2. The witnesses are CUPTI's kernel time
(torch.profiler) and, for `torch.mm` at 8192, also a plain pair of events:

    python docs/measured/witness.py
"""

import statistics
import time

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

CALLS = 100


def matmul(n: int):
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    return lambda: torch.mm(a, b)


def add(n: int):
    a, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    return lambda: torch.add(a, b)


def cupti_us(call, flush) -> float:
    call()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(CALLS):
            time.sleep(0.01)
            flush.max()  # reads: leaves clean lines in L2
            torch.cuda._sleep(2_000_000)  # 1 ms on the device: everything is queued by then
            call()
            torch.cuda.synchronize()
    kernels = [e for e in profiler.events() if e.device_type == DeviceType.CUDA]
    flushing = ("reduce", "Memset", "spin")
    own = [e.device_time for e in kernels if not any(word in e.name for word in flushing)]
    assert len(own) == CALLS, f"{len(own)} kernels of {CALLS} calls"
    return statistics.median(own)


def events_us(call, flush) -> float:
    times = []
    for _ in range(60):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        time.sleep(0.01)
        flush.max()
        torch.cuda._sleep(2_000_000)  # 1 ms on the device: everything is queued by then
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def main() -> None:
    flush = torch.zeros(64 << 20, dtype=torch.int32, device="cuda")
    calls = {f"matmul {n}": matmul(n) for n in (128, 256, 512, 1024, 2048)}
    for name, call in {**calls, "add 4 MB": add(2**20), "add 64 MB": add(2**24)}.items():
        print(f"{name:14s} {cupti_us(call, flush):9.3f} µs  CUPTI kernel time")
    large = matmul(8192)
    print(f"{'matmul 8192':14s} {cupti_us(large, flush):9.3f} µs  CUPTI kernel time")
    print(f"{'matmul 8192':14s} {events_us(large, flush):9.3f} µs  event pair")


if __name__ == "__main__":
    main()
