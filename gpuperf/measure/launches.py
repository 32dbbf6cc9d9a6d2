"""Read the launch of each kernel of a call (grid, block, cluster, registers) from CUPTI's records.

torch.profiler omits the cluster and the number of clusters that the device can hold at once. The
call runs once more for these records, untimed.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from ctypes import POINTER, c_size_t, c_uint8, c_uint32, c_void_p
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from gpuperf.measure.counters.cupti import NoCounters, fields, find_library
from gpuperf.model.kernelname import COMPUTING, kind_of
from gpuperf.model.record import Kernel, Launch

# Results of cuptiGetVersion: of CUPTI 12.0, whose record has the cluster, and of 13.0, whose record
# also has the number of clusters that the device can hold.
HAS_CLUSTERS, HAS_CAPACITY = 18, 130000
CONCURRENT_KERNEL = 10  # CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
BUFFER_BYTES, ALIGNMENT = 1 << 20, 8
COMMON_WORDS = (
    "void bool char short unsigned long float double const signed anonymous namespace lambda "
    "operator false true volatile enum allocator"
)
MOST_CLUSTERS = 1 << 16  # that a device can hold: a larger value in a record is no count


class _KernelRecord(ctypes.Structure):
    """CUpti_ActivityKernel10 of cupti_activity.h; that of CUPTI 12 ends before `most_cluster`."""

    _fields_ = fields(
        "I kind B cache B shared_config H registers 2I partitioned Q start Q end Q completed "
        "I device I context I stream 3i grid 3i block i static_shared i dynamic_shared 2I local "
        "I correlation Q grid_id s name P reserved Q queued Q submitted 4B flags I shared_executed "
        "Q graph_node I shared_limit I graph P policy 2I channel 3I cluster I scheduling "
        "Q local_total I most_cluster I most_clusters"
    )


_Bytes = POINTER(c_uint8)
_Requested = ctypes.CFUNCTYPE(None, POINTER(_Bytes), POINTER(c_size_t), POINTER(c_size_t))
_Completed = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, _Bytes, c_size_t, c_size_t)


class _LaunchRecorder:
    """Recorder of kernel launches, in buffers that CUPTI fills in threads of its own.

    Its callbacks are registered for each recording, since torch.profiler registers its own. The
    callbacks live as long as the process, since CUPTI may keep pointers to them.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        version = c_uint32()
        library.cuptiGetVersion(ctypes.byref(version))
        self.version = version.value
        self._buffers: dict[int, Any] = {}
        self._launches: list[_RawLaunch] = []
        self._callbacks = (_Requested(self._requested), _Completed(self._completed))

    def record(self, run: Callable[[], None]) -> tuple[tuple[str, Launch], ...]:
        """Return the mangled names and launches of the kernels of *run*, in order of start.

        *run* waits for the device at its end. The result is empty if CUPTI has another subscriber.
        """
        self._launches.clear()
        library = self._library
        if library.cuptiActivityRegisterCallbacks(*self._callbacks):
            return ()
        if library.cuptiActivityEnable(CONCURRENT_KERNEL):
            return ()
        try:
            run()
        finally:
            library.cuptiActivityFlushAll(FORCED)
            library.cuptiActivityDisable(CONCURRENT_KERNEL)
        return tuple((raw.name, raw.launch) for raw in sorted(self._launches))

    def _requested(self, buffer: Any, size: Any, most_records: Any) -> None:
        raw = (c_uint8 * (BUFFER_BYTES + ALIGNMENT))()
        address = -(-ctypes.addressof(raw) // ALIGNMENT) * ALIGNMENT
        self._buffers[address] = raw
        buffer[0] = ctypes.cast(address, _Bytes)
        size[0], most_records[0] = BUFFER_BYTES, 0

    def _completed(self, _context: Any, _stream: Any, buffer: Any, _size: int, valid: int) -> None:
        try:
            self._launches.extend(self._read(buffer, valid))
        finally:
            self._buffers.pop(ctypes.addressof(buffer.contents), None)

    def _read(self, buffer: Any, valid: int) -> Iterator[_RawLaunch]:
        record, next_record = c_void_p(), self._library.cuptiActivityGetNextRecord
        while next_record(buffer, c_size_t(valid), ctypes.byref(record)) == 0 and record.value:
            if c_uint32.from_address(record.value).value == CONCURRENT_KERNEL:
                kernel = _KernelRecord.from_address(record.value)
                clusters = kernel.most_clusters if self.version >= HAS_CAPACITY else 0
                yield _RawLaunch(
                    kernel.start,
                    (kernel.name or b"").decode(errors="replace"),
                    (tuple(kernel.grid), tuple(kernel.block), tuple(kernel.cluster)),
                    kernel.registers,
                    kernel.static_shared + kernel.dynamic_shared,
                    clusters if clusters < MOST_CLUSTERS else 0,
                )


class _RawLaunch(NamedTuple):
    """A launch as a callback reads it, unchecked, since a callback must not raise."""

    start: int
    name: str
    sizes: tuple[Any, Any, Any]
    registers: int
    shared_bytes: int
    most_clusters: int

    @property
    def launch(self) -> Launch:
        """The same launch as a valid `Launch`.

        Raises: ValueError for sizes that CUDA does not allow.
        """
        return Launch(*self.sizes, self.registers, self.shared_bytes, self.most_clusters)


def launches_of(run: Callable[[], None]) -> tuple[tuple[str, Launch], ...]:
    """Return the mangled names and launches of the kernels of *run*; empty if CUPTI has none."""
    recorder = _recorder()
    return recorder.record(run) if recorder else ()


@cache
def _recorder() -> _LaunchRecorder | None:
    try:
        recorder = _LaunchRecorder(ctypes.CDLL(str(find_library())))
    except (NoCounters, OSError, AttributeError):
        return None
    return recorder if recorder.version >= HAS_CLUSTERS else None


def with_launches(
    kernels: Sequence[Kernel], order: Sequence[str], launches: Sequence[tuple[str, Launch]]
) -> tuple[Kernel, ...]:
    """Return *kernels* with the first launch of each; *order* are the names that a call runs.

    *kernels* are unchanged if *launches* are not of the kernels in *order*: kernels of two streams
    may start in either order.
    """
    names = [name for name in order if kind_of(name) in COMPUTING]
    pairs = list(zip(names, launches, strict=False))
    if len(names) != len(launches) or not all(_same(name, m) for name, (m, _) in pairs):
        return tuple(kernels)
    first: dict[str, Launch] = {}
    for name, (_, launch) in pairs:
        first.setdefault(name, launch)
    return tuple(replace(kernel, launch=first.get(kernel.name)) for kernel in kernels)


def _same(name: str, mangled: str) -> bool:
    """Return whether *name* may be the demangled form of *mangled*.

    A mangled name has each identifier after its length (Itanium C++ ABI, 5.1.2); words of up to
    three letters and built-in types are ignored.
    """
    words = set(re.findall(r"[A-Za-z_]\w{3,}", name)) - set(COMMON_WORDS.split())
    return name == mangled or (bool(words) and all(f"{len(w)}{w}" in mangled for w in words))
