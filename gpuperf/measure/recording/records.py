"""Read the records of kernels, copies and memsets that CUPTI writes into a buffer.

Later versions of a record append fields and move none, so one layout reads all of them from CUPTI
12.0 on: CUpti_ActivityKernel9 to 13, CUpti_ActivityMemcpy5 to 7, CUpti_ActivityMemcpyPtoP4, and
CUpti_ActivityMemset4 and 5 (compared in cupti_activity.h of CUDA 12.1, 12.8, 13.0 and 13.4).
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint32
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from gpuperf.measure.counters.cupti import fields
from gpuperf.model.kernelname import KernelKind
from gpuperf.model.record import Launch

# Results of cuptiGetVersion: of CUPTI 12.0, whose record of a kernel has the cluster, and of 13.0,
# which also fills in the number of clusters that the device can hold.
OLDEST, HAS_CAPACITY = 18, 130000
# CUpti_ActivityKind. MEMCPY2 is a copy between two devices.
MEMCPY, MEMSET, CONCURRENT_KERNEL, MEMCPY2 = 1, 2, 10, 22
MOST_CLUSTERS = 1 << 16  # that a device can hold: a larger value in a record is no count

# The names that libkineto (cupti_strings.cpp) gives to the values of CUpti_ActivityMemcpyKind and
# CUpti_ActivityMemoryKind.
ROUTES = (
    *("<unknown>", "HtoD", "DtoH", "HtoA", "AtoH"),
    *("AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
)
MEMORIES = (
    *("Unknown", "Pageable", "Pinned", "Device", "Array"),
    *("Managed", "Device Static", "Managed Static"),
)


class KernelLayout(ctypes.Structure):
    """CUpti_ActivityKernel9, to its last field that is used here."""

    _fields_ = fields(
        "I kind B cache B shared_config H registers 2I partitioned Q start Q end Q completed "
        "I device I context I stream 3i grid 3i block i static_shared i dynamic_shared 2I local "
        "I correlation Q grid_id s name P reserved Q queued Q submitted 4B flags I shared_executed "
        "Q graph_node I shared_limit I graph P policy 2I channel 3I cluster I scheduling "
        "Q local_total I most_cluster I most_clusters"
    )


class CopyLayout(ctypes.Structure):
    """CUpti_ActivityMemcpy5, to its last field that is used here."""

    _fields_ = fields(
        "I kind B route B source B target B flags Q bytes Q start Q end I device I context "
        "I stream I correlation I runtime_correlation I padding P reserved Q graph_node"
    )


class PeerCopyLayout(ctypes.Structure):
    """CUpti_ActivityMemcpyPtoP4, to its last field that is used here."""

    _fields_ = fields(
        "I kind B route B source B target B flags Q bytes Q start Q end I device I context "
        "I stream 5I devices P reserved Q graph_node"
    )


class SetLayout(ctypes.Structure):
    """CUpti_ActivityMemset4, to its last field that is used here."""

    _fields_ = fields(
        "I kind I value Q bytes Q start Q end I device I context I stream I correlation "
        "H flags H memory I padding P reserved Q graph_node"
    )


LAYOUTS: dict[int, Any] = {
    MEMCPY: CopyLayout,
    MEMCPY2: PeerCopyLayout,
    MEMSET: SetLayout,
    CONCURRENT_KERNEL: KernelLayout,
}


class DeviceRecord(NamedTuple):
    """A kernel, a copy or a memset, with start and end in nanoseconds of CUPTI's clock.

    `name` is demangled, and `symbol` is the name in the binary. `bytes` are those of a copy or a
    memset, `sizes` the grid, the block and the cluster of a kernel, as the record has them.
    """

    start_ns: int
    end_ns: int
    kind: KernelKind
    name: str
    device: int = 0
    stream: int = 0
    bytes: int = 0
    symbol: str = ""
    sizes: tuple[tuple[int, ...], ...] = ()
    registers: int = 0
    shared_bytes: int = 0
    most_clusters: int = 0

    @property
    def complete(self) -> bool:
        """Whether CUPTI recorded the start and the end; both are 0 where it could not."""
        return 0 < self.start_ns <= self.end_ns

    @property
    def launch(self) -> Launch:
        """The launch of a kernel. Raises: ValueError for sizes that CUDA does not allow."""
        grid, block, cluster = ((a, b, c) for a, b, c in self.sizes)
        return Launch(grid, block, cluster, self.registers, self.shared_bytes, self.most_clusters)


def read_record(address: int, version: int) -> DeviceRecord | None:
    """Return the record at *address* in a buffer of CUPTI *version*; None for any other kind."""
    kind = c_uint32.from_address(address).value
    if kind not in LAYOUTS:
        return None
    raw = LAYOUTS[kind].from_address(address)
    if kind == CONCURRENT_KERNEL:
        return _kernel(raw, version)
    if kind == MEMSET:
        name = f"Memset ({_named(MEMORIES, raw.memory)})"
    else:
        ends = (_named(MEMORIES, memory) for memory in (raw.source, raw.target))
        name = f"Memcpy {_named(ROUTES, raw.route, ROUTES[0])} ({' -> '.join(ends)})"
    return DeviceRecord(
        raw.start,
        raw.end,
        "set" if kind == MEMSET else "copy",
        name,
        raw.device,
        raw.stream,
        raw.bytes,
    )


def _kernel(raw: Any, version: int) -> DeviceRecord:
    symbol = (raw.name or b"").decode(errors="replace")
    most = raw.most_clusters if version >= HAS_CAPACITY else 0
    return DeviceRecord(
        raw.start,
        raw.end,
        "kernel",
        demangle(symbol),
        raw.device,
        raw.stream,
        symbol=symbol,
        sizes=(tuple(raw.grid), tuple(raw.block), tuple(raw.cluster)),
        registers=raw.registers,
        shared_bytes=raw.static_shared + raw.dynamic_shared,
        most_clusters=most if most < MOST_CLUSTERS else 0,
    )


@lru_cache(maxsize=4096)
def demangle(symbol: str) -> str:
    """Return the C++ name of *symbol*, as the events of torch.profiler have it.

    A name without the prefix of mangled names is not C++: torch.profiler turns a C kernel `Pf` into
    `float*`, and this does not.
    """
    if not symbol.startswith("_Z"):
        return symbol
    demangled: str = torch._C._demangle(symbol)
    return demangled


def _named(names: tuple[str, ...], value: int, unknown: str = "Unrecognized") -> str:
    return names[value] if value < len(names) else unknown
