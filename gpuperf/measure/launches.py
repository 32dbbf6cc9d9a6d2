"""Read the launch of each kernel of a call (grid, block, cluster, registers) from CUPTI's records.

torch.profiler omits the cluster and the number of clusters that the device can hold at once. The
call runs once more for these records, untimed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuperf.measure.recording.records import DeviceRecord
from gpuperf.measure.recording.session import CannotRecord, open_recorder
from gpuperf.model.kernelname import COMPUTING, kind_of
from gpuperf.model.record import Kernel, Launch


def launches_of(run: Callable[[], None]) -> tuple[DeviceRecord, ...]:
    """Return the records of the kernels of *run* in order of start; empty if CUPTI has none."""
    try:
        recording = open_recorder().record(run, timed=False)
    except CannotRecord:
        return ()
    return tuple(record for record in recording.records if record.kind == "kernel")


def with_launches(
    kernels: Sequence[Kernel], order: Sequence[str], records: Sequence[DeviceRecord]
) -> tuple[Kernel, ...]:
    """Return *kernels* with the first launch of each; *order* are the names that a call runs.

    *kernels* are unchanged if *records* are not of the kernels in *order*: kernels of two streams
    may start in either order. Raises: ValueError for a launch that CUDA does not allow.
    """
    names = [name for name in order if kind_of(name) in COMPUTING]
    pairs = list(zip(names, records, strict=False))
    same = all(name in (record.name, record.symbol) for name, record in pairs)
    if len(names) != len(records) or not same:
        return tuple(kernels)
    first: dict[str, Launch] = {}
    for name, record in pairs:
        first.setdefault(name, record.launch)
    return tuple(replace(kernel, launch=first.get(kernel.name)) for kernel in kernels)
