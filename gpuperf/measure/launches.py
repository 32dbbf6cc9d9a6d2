"""How was each kernel of a call launched, by CUPTI's record of it?

torch.profiler tells no clusters, nor how many of them the device holds at once; CUPTI's own record
does. The call runs once more for it, untimed.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from ctypes import (
    POINTER,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from gpuperf.measure.counters.cupti import NoCounters, find_library
from gpuperf.model.kernelname import COMPUTING, kind_of
from gpuperf.model.record import Kernel, Launch

# cuptiGetVersion: CUPTI 12.0, whose record has clusters, and 13.0, whose record has their number.
HAS_CLUSTERS, HAS_CAPACITY = 18, 130000
CONCURRENT_KERNEL = 10  # CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
BUFFER_BYTES, ALIGNMENT = 1 << 20, 8
PLAIN = frozenset(
    {
        "void",
        "bool",
        "char",
        "short",
        "unsigned",
        "long",
        "float",
        "double",
        "const",
        "signed",
        "anonymous",
        "namespace",
        "lambda",
        "operator",
        "false",
        "true",
        "volatile",
        "enum",
        "allocator",
    }
)
MOST_CLUSTERS = 1 << 16  # of a device: anything beyond is no count


class _Kernel(ctypes.Structure):
    """CUpti_ActivityKernel10 of cupti_activity.h; 9, of CUPTI 12, ends before `most_cluster`."""

    _fields_ = [
        ("kind", c_uint32),
        ("cache", c_uint8),
        ("shared_config", c_uint8),
        ("registers", c_uint16),
        ("partitioned", c_uint32 * 2),
        ("start", c_uint64),
        ("end", c_uint64),
        ("completed", c_uint64),
        ("device", c_uint32),
        ("context", c_uint32),
        ("stream", c_uint32),
        ("grid", c_int32 * 3),
        ("block", c_int32 * 3),
        ("static_shared", c_int32),
        ("dynamic_shared", c_int32),
        ("local", c_uint32 * 2),
        ("correlation", c_uint32),
        ("grid_id", c_uint64),
        ("name", c_char_p),
        ("reserved", c_void_p),
        ("queued", c_uint64),
        ("submitted", c_uint64),
        ("flags", c_uint8 * 4),
        ("shared_executed", c_uint32),
        ("graph_node", c_uint64),
        ("shared_limit", c_uint32),
        ("graph", c_uint32),
        ("policy", c_void_p),
        ("channel", c_uint32 * 2),
        ("cluster", c_uint32 * 3),
        ("scheduling", c_uint32),
        ("local_total", c_uint64),
        ("most_cluster", c_uint32),
        ("most_clusters", c_uint32),
    ]


_Bytes = POINTER(c_uint8)
_Requested = ctypes.CFUNCTYPE(None, POINTER(_Bytes), POINTER(c_size_t), POINTER(c_size_t))
_Completed = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, _Bytes, c_size_t, c_size_t)


class _Activities:
    """CUPTI's kernel records, in buffers that it fills in threads of its own.

    Its callbacks are registered for each session anew, since torch.profiler registers its own; and
    they live as long as the process, in which the library may hold on to them.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        version = c_uint32()
        library.cuptiGetVersion(ctypes.byref(version))
        self.version = version.value
        self._buffers: dict[int, Any] = {}
        self._found: list[_Raw] = []
        self._callbacks = (_Requested(self._requested), _Completed(self._completed))

    def record(self, run: Callable[[], None]) -> tuple[tuple[str, Launch], ...]:
        """The kernels of *run*, which waits for the device at its end, by their start, with their
        names as the linker has them; none where CUPTI has another subscriber."""
        self._found.clear()
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
        return tuple((raw.name, raw.launch) for raw in sorted(self._found))

    def _requested(self, buffer: Any, size: Any, most_records: Any) -> None:
        raw = (c_uint8 * (BUFFER_BYTES + ALIGNMENT))()
        address = -(-ctypes.addressof(raw) // ALIGNMENT) * ALIGNMENT
        self._buffers[address] = raw
        buffer[0] = ctypes.cast(address, _Bytes)
        size[0], most_records[0] = BUFFER_BYTES, 0

    def _completed(self, _context: Any, _stream: Any, buffer: Any, _size: int, valid: int) -> None:
        try:
            self._found.extend(self._read(buffer, valid))
        finally:
            self._buffers.pop(ctypes.addressof(buffer.contents), None)

    def _read(self, buffer: Any, valid: int) -> Iterator[_Raw]:
        record, next_record = c_void_p(), self._library.cuptiActivityGetNextRecord
        while next_record(buffer, c_size_t(valid), ctypes.byref(record)) == 0 and record.value:
            if c_uint32.from_address(record.value).value == CONCURRENT_KERNEL:
                kernel = _Kernel.from_address(record.value)
                clusters = kernel.most_clusters if self.version >= HAS_CAPACITY else 0
                yield _Raw(
                    kernel.start,
                    (kernel.name or b"").decode(errors="replace"),
                    (tuple(kernel.grid), tuple(kernel.block), tuple(kernel.cluster)),
                    kernel.registers,
                    kernel.static_shared + kernel.dynamic_shared,
                    clusters if clusters < MOST_CLUSTERS else 0,
                )


class _Raw(NamedTuple):
    """What is read in a callback, where nothing may be raised."""

    start: int
    name: str
    sizes: tuple[Any, Any, Any]
    registers: int
    shared_bytes: int
    most_clusters: int

    @property
    def launch(self) -> Launch:
        """Raises: ValueError for sizes that CUDA does not allow."""
        return Launch(*self.sizes, self.registers, self.shared_bytes, self.most_clusters)


def launches_of(run: Callable[[], None]) -> tuple[tuple[str, Launch], ...]:
    """How the kernels of *run* were launched, in order, with their names as the linker has them;
    nothing where CUPTI does not tell."""
    activities = _activities()
    return activities.record(run) if activities else ()


@cache
def _activities() -> _Activities | None:
    try:
        activities = _Activities(ctypes.CDLL(str(find_library())))
    except (NoCounters, OSError, AttributeError):
        return None
    return activities if activities.version >= HAS_CLUSTERS else None


def with_launches(
    kernels: Sequence[Kernel], order: Sequence[str], found: Sequence[tuple[str, Launch]]
) -> tuple[Kernel, ...]:
    """*kernels* with the first launch of each, as *order* names what a call runs; without, where
    the two do not agree on which kernels those are: of two streams either may start first."""
    names = [name for name in order if kind_of(name) in COMPUTING]
    pairs = list(zip(names, found, strict=False))
    if len(names) != len(found) or not all(_same(name, linked) for name, (linked, _) in pairs):
        return tuple(kernels)
    first: dict[str, Launch] = {}
    for name, (_, launch) in pairs:
        first.setdefault(name, launch)
    return tuple(replace(kernel, launch=first.get(kernel.name)) for kernel in kernels)


def _same(name: str, linked: str) -> bool:
    """Whether *name*, which was demangled, may be that of *linked*, where each of its identifiers
    stands behind its length (Itanium C++ ABI, 5.1.2); short ones and plain types do not."""
    words = {word for word in re.findall(r"[A-Za-z_]\w{3,}", name) if word not in PLAIN}
    return name == linked or (bool(words) and all(f"{len(w)}{w}" in linked for w in words))
