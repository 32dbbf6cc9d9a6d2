"""Run a function while CUPTI records the kernels, copies and memsets of all devices.

CUPTI asks for buffers, and returns them, by two callbacks that are registered for the whole
process. libkineto, the recorder of torch.profiler, registers its own callbacks at the start of each
of its sessions, and so does this module. A session here disables what it enabled, and flushes all
of its buffers, so that no record of it reaches the callbacks of another.

libkineto also registers a function that CUPTI takes its timestamps from: the processor's counter,
in ticks. CUPTI has no call to take it back, and libkineto needs it, so `record` refuses a process
in which CUPTI's clock is not that of the system in nanoseconds.

The callbacks only hand over memory. CUPTI may hold a lock of its own when it calls them, and a
thread that waits for this lock may hold the interpreter's: a buffer that holds all records of a
usual session is asked for by the first launch, and returned by the flush, during which the
interpreter's lock is free.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from ctypes import POINTER, byref, c_int, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any, NamedTuple

import torch

from gpuperf.measure.counters.cupti import NoCounters, find_library
from gpuperf.measure.recording.records import (
    CONCURRENT_KERNEL,
    MEMCPY,
    MEMCPY2,
    MEMSET,
    OLDEST,
    DeviceRecord,
    read_record,
)

RECORDED = (CONCURRENT_KERNEL, MEMCPY, MEMSET)
PEER = MEMCPY2  # copies between two devices, recorded where CUPTI has them as a kind of their own
FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
BUFFER_BYTES = 8 << 20  # 38,000 kernels; NVIDIA recommends 1 to 10 MB
NEAR_NS = 10**9  # CUPTI's clock is the system's if they are this close: a counter is years away
CLOCK = "torch.profiler has replaced the clock of CUPTI in this process"

_Bytes = POINTER(c_uint8)
_Requested = ctypes.CFUNCTYPE(None, POINTER(_Bytes), POINTER(c_size_t), POINTER(c_size_t))
_Completed = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, _Bytes, c_size_t, c_size_t)
_Called = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_uint32, c_void_p)


class CannotRecord(Exception):
    """CUPTI does not record here; `busy` says that another profiler uses it."""

    def __init__(self, reason: str, busy: bool = False) -> None:
        super().__init__(reason)
        self.busy = busy


class Recording(NamedTuple):
    """The records of a session in order of start, and the number of those that CUPTI lost."""

    records: tuple[DeviceRecord, ...]
    lost: int = 0


class Recorder:
    """Recorder of the work of all devices, one session at a time, by the *library* CUPTI.

    Its callbacks live as long as the process, since CUPTI keeps pointers to them. Raises:
    CannotRecord for a library that is too old.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        version = c_uint32()
        library.cuptiGetVersion(byref(version))
        self.version = version.value
        if self.version < OLDEST:
            raise CannotRecord(f"version {self.version} of CUPTI is older than {OLDEST}")
        self._lock = threading.Lock()
        self._foreign_clock = False
        self._open: dict[int, Any] = {}
        self._full: list[tuple[Any, int]] = []
        self._callbacks = _Requested(self._requested), _Completed(self._completed)
        self._ignore = _Called(_ignore)

    def record(self, run: Callable[[], object], timed: bool = True) -> Recording:
        """Return the records of *run*, which waits for the device at its end.

        Without *timed*, the records may be in any unit of time, and another profiler may have
        subscribed to CUPTI. Raises: what *run* raises; CannotRecord before *run*, or once in a
        process after it, if only the records show that CUPTI's clock counts no nanoseconds.
        """
        if torch_profiles():
            raise CannotRecord("torch.profiler is recording in this process", busy=True)
        if not self._lock.acquire(blocking=False):
            raise CannotRecord("another thread of this process records kernels", busy=True)
        try:
            if timed and not self._counts_nanoseconds():
                raise CannotRecord(CLOCK)
            began = time.time_ns()
            with self._subscribed() if timed else contextlib.nullcontext(), self._enabled():
                run()
            recording = self._collected()
            if timed and not _within(recording, began, time.time_ns()):
                self._foreign_clock = True
                raise CannotRecord(CLOCK)
            return recording
        finally:
            self._full.clear()  # buffers that CUPTI still holds stay in `_open`
            self._lock.release()

    def _counts_nanoseconds(self) -> bool:
        """Return whether CUPTI's clock is that of the system, which counts nanoseconds."""
        now = c_uint64()
        if self._foreign_clock or self._library.cuptiGetTimestamp(byref(now)):
            return False
        return abs(now.value - time.time_ns()) < NEAR_NS

    @contextlib.contextmanager
    def _subscribed(self) -> Iterator[None]:
        """Be CUPTI's only subscriber, as NVIDIA asks of each tool. Raises: CannotRecord."""
        handle = c_void_p()
        result = self._library.cuptiSubscribe(byref(handle), self._ignore, None)
        if result:
            raise CannotRecord(f"another profiler uses CUPTI (result {result})", busy=True)
        try:
            yield
        finally:
            self._library.cuptiUnsubscribe(handle)

    @contextlib.contextmanager
    def _enabled(self) -> Iterator[None]:
        """Enable the records, then disable them and take all buffers back. Raises: CannotRecord."""
        library, enabled = self._library, []
        result = library.cuptiActivityRegisterCallbacks(*self._callbacks)
        try:
            for kind in RECORDED if not result else ():
                result = result or library.cuptiActivityEnable(kind)
                enabled += [] if result else [kind]
            if result:
                raise CannotRecord(f"CUPTI records no kernels (result {result})", busy=True)
            enabled += [] if library.cuptiActivityEnable(PEER) else [PEER]
            library.cuptiActivityFlushAll(FORCED)  # brings home what an earlier session left
            self._full.clear()
            self._dropped()  # sets the count to zero
            yield
        finally:
            for kind in enabled:
                library.cuptiActivityDisable(kind)
            if enabled:
                library.cuptiActivityFlushAll(FORCED)

    def _collected(self) -> Recording:
        """Return the records in the buffers that CUPTI has returned."""
        records = [r for buffer, valid in self._full for r in self._read(buffer, valid)]
        whole = sorted(record for record in records if record.complete)
        return Recording(tuple(whole), self._dropped() + len(records) - len(whole))

    def _read(self, buffer: Any, valid: int) -> Iterator[DeviceRecord]:
        address, next_record = c_void_p(), self._library.cuptiActivityGetNextRecord
        while next_record(buffer, c_size_t(valid), byref(address)) == 0 and address.value:
            record = read_record(address.value, self.version)
            if record is not None:
                yield record

    def _dropped(self) -> int:
        """Return how many records CUPTI dropped for want of memory since the last call."""
        count = c_size_t()
        result = self._library.cuptiActivityGetNumDroppedRecords(None, c_uint32(0), byref(count))
        return 0 if result else count.value

    def _requested(self, buffer: Any, size: Any, most_records: Any) -> None:
        # Pages of a map cost nothing before CUPTI writes to them: ctypes would zero them all.
        memory = mmap.mmap(-1, BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        raw = (c_uint8 * BUFFER_BYTES).from_buffer(memory)
        self._open[ctypes.addressof(raw)] = raw
        buffer[0] = ctypes.cast(raw, _Bytes)
        size[0], most_records[0] = BUFFER_BYTES, 0

    def _completed(self, _context: Any, _stream: Any, buffer: Any, _size: int, valid: int) -> None:
        # A buffer that another profiler gave to CUPTI is not in `_open`.
        raw = self._open.pop(ctypes.addressof(buffer.contents), None)
        if raw is not None:
            self._full.append((raw, valid))


def torch_profiles() -> bool:
    """Return whether torch.profiler is recording, in any thread."""
    return bool(torch.autograd.profiler._is_profiler_enabled or torch.autograd._profiler_enabled())


def _within(recording: Recording, began: int, ended: int) -> bool:
    """Return whether the records of *recording* lie between two times of the system, about."""
    return not recording.records or (
        recording.records[0].start_ns > began - NEAR_NS
        and max(record.end_ns for record in recording.records) < ended + NEAR_NS
    )


def _ignore(*arguments: object) -> None:
    """Receive a callback of a subscription that asks for none."""


@cache
def open_recorder() -> Recorder:
    """Return the one recorder of this process. Raises: CannotRecord without a usable CUPTI."""
    try:
        return Recorder(ctypes.CDLL(str(find_library())))
    except (NoCounters, OSError, AttributeError) as error:
        raise CannotRecord(f"CUPTI cannot be loaded: {error}") from None
