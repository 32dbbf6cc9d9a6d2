"""Compare the kernels of a call with the peak, one by one."""

from __future__ import annotations

from dataclasses import dataclass

from gpuperf.explain.ladder import LARGEST, SMALLEST
from gpuperf.model.metrics import moved_bytes
from gpuperf.model.peaks import Ceiling
from gpuperf.model.record import Record


@dataclass(frozen=True)
class KernelShare:
    """One kernel of a call that has several.

    `share` is its part of the time. `of_peak` is the rate of its operations (in the memory chain,
    of its bytes) over the peak, the product of `pipe`, the use of the pipe at the clock observed,
    and `path`, the rate of its instructions. None stands for unknown.
    """

    name: str
    count: int
    share: float
    of_peak: float | None
    pipe: float | None = None
    path: float | None = None


def counter_names(ceiling: Ceiling) -> tuple[str, str]:
    """Return the counters of the ceiling's pipe: operations, and cycles."""
    if ceiling.pipe == "tensor":
        return f"tensor_{ceiling.dtype}", "tensor_cycles"
    return f"{ceiling.dtype}_flops", "fp64_cycles" if ceiling.dtype == "fp64" else "fma_cycles"


def kernel_shares(
    record: Record,
    peak: float,
    ceiling: Ceiling | None = None,
    per_clock: float | None = None,
    clock_hz: float | None = None,
) -> tuple[KernelShare, ...]:
    """Return the kernels of a call that has several, the longest first.

    Without a *ceiling* their rates are those of memory.
    """
    if sum(kernel.computes for kernel in record.kernels) < 2:
        return ()
    assert record.samples is not None  # `explain` requires it
    time_s, shares = record.samples.median_s, []
    for kernel in record.kernels:
        seconds, counts = kernel.time_s, kernel.counters
        if not seconds or not SMALLEST < seconds < LARGEST:
            continue
        cycles = counts.get(counter_names(ceiling)[1]) if ceiling else None
        done = counts.get(counter_names(ceiling)[0]) if ceiling else moved_bytes(counts)
        share = KernelShare(
            kernel.name,
            kernel.count,
            seconds / time_s,
            done / (seconds * peak) if done is not None else None,
            cycles / (clock_hz * seconds) if cycles and clock_hz and clock_hz > 1 else None,
            done / (cycles * per_clock) if cycles and per_clock and done else None,
        )
        shares.append(share)
    return tuple(sorted(shares, key=lambda share: -share.share))
