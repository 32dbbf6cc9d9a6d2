"""Fake of CUPTI's activity API: it writes records, laid out as in NVIDIA's headers, into buffers
that it asks for, and returns the buffers when it is flushed, in a thread of its own.

It is as strict as the library: one subscriber at a time, no record of a kind that is not enabled,
and no byte written to a buffer that it has returned.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from ctypes import POINTER, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

from gpuperf.measure.recording.records import CONCURRENT_KERNEL, LAYOUTS, MEMCPY, MEMCPY2, MEMSET

# Sizes of the whole records: CUpti_ActivityKernel10, Memcpy6, MemcpyPtoP4 and Memset4 of CUDA 13.0.
SIZES = {CONCURRENT_KERNEL: 216, MEMCPY: 96, MEMCPY2: 96, MEMSET: 88}
BUSY, MAX_LIMIT, NOT_INITIALIZED = 39, 12, 15  # of CUptiResult
NAMES: list[ctypes.Array[ctypes.c_char]] = []  # strings to which records point


def layout(kind: int, **values: Any) -> bytes:
    """Return the bytes of a record of *kind*, padded to its size with ones."""
    record = LAYOUTS[kind](kind=kind)
    for name, value in values.items():
        if isinstance(value, bytes):
            NAMES.append(ctypes.create_string_buffer(value))
            value = ctypes.addressof(NAMES[-1])
        elif isinstance(value, tuple):
            value = type(getattr(record, name))(*value)
        setattr(record, name, value)
    return bytes(record) + b"\xff" * (SIZES[kind] - ctypes.sizeof(record))


def kernel(
    start: int, name: bytes = b"fill", last: int = 10, now: int | None = None, **values: Any
) -> bytes:
    """Return a kernel's record that starts *start* ns from *now*, and takes *last* ns."""
    now = time.time_ns() if now is None else now
    sizes = {"grid": (8, 1, 1), "block": (128, 1, 1), "cluster": (1, 1, 1)}
    times = {"start": now + start, "end": now + start + last}
    return layout(CONCURRENT_KERNEL, name=name, **{**sizes, **times, **values})


@dataclass
class FakeActivity:
    """Stands in for the library; `launch` is called where a program would launch a kernel.

    `refused` gives functions the result that they fail with. `offset_ns` is by how much its clock
    is ahead of the system's. `buffers` is how many buffers it takes before it drops records.
    """

    version: int = 130001
    refused: dict[str, int] = field(default_factory=dict)
    offset_ns: int = 0
    buffers: int = 1 << 20
    most: int = 1 << 20  # records in a buffer
    log: list[str] = field(default_factory=list)
    enabled: set[int] = field(default_factory=set)
    subscriber: bool = False
    dropped: int = 0
    _callbacks: tuple[Any, Any] = (None, None)
    _buffer: tuple[Any, int] | None = None
    _written: list[bytes] = field(default_factory=list)
    _reading: dict[int, int] = field(default_factory=dict)

    def launch(self, record: bytes) -> None:
        """Record what a program does, if its kind is enabled."""
        kind = int.from_bytes(record[:4], "little")
        if kind not in self.enabled:
            return
        if self._buffer is None:
            if not self.buffers:
                self.dropped += 1
                return
            self._request()
        self._written.append(record)
        if len(self._written) == self.most:
            self._complete()

    def _request(self) -> None:
        self.buffers -= 1
        buffer, size, most = POINTER(c_uint8)(), c_size_t(), c_size_t()
        self._callbacks[0](ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(most))
        assert size.value >= 1 << 20
        assert ctypes.addressof(buffer.contents) % 8 == 0
        self._buffer = buffer, size.value

    def _complete(self) -> None:
        """Return the buffer, in a thread that belongs to the library."""
        if self._buffer is None:
            return
        (buffer, size), data = self._buffer, b"".join(self._written)
        ctypes.memmove(buffer, data, len(data))
        self._buffer, self._written = None, []
        arguments = (None, 0, buffer, size, len(data))
        worker = threading.Thread(target=self._callbacks[1], args=arguments)
        worker.start()
        worker.join()

    def _answer(self, name: str, act: Callable[[], None]) -> int:
        self.log.append(name)
        if name in self.refused:
            return self.refused[name]
        act()
        return 0

    def cuptiGetVersion(self, out: Any) -> int:
        out._obj.value = self.version
        return 0

    def cuptiGetTimestamp(self, out: Any) -> int:
        out._obj.value = time.time_ns() + self.offset_ns
        return self.refused.get("timestamp", 0)

    def cuptiSubscribe(self, handle: Any, callback: Any, data: None) -> int:
        assert callback is not None
        if self.subscriber:
            return BUSY
        handle._obj.value = 0x51
        return self._answer("subscribe", lambda: setattr(self, "subscriber", True))

    def cuptiUnsubscribe(self, handle: c_void_p) -> int:
        assert handle.value == 0x51
        assert not self.enabled
        return self._answer("unsubscribe", lambda: setattr(self, "subscriber", False))

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:
        assert not self.enabled
        pair = requested, completed
        return self._answer("register", lambda: setattr(self, "_callbacks", pair))

    def cuptiActivityEnable(self, kind: int) -> int:
        return self._answer(f"enable {kind}", lambda: self.enabled.add(kind))

    def cuptiActivityDisable(self, kind: int) -> int:
        return self._answer(f"disable {kind}", lambda: self.enabled.remove(kind))

    def cuptiActivityFlushAll(self, flag: int) -> int:
        assert flag == 1
        return self._answer("flush", self._complete)

    def cuptiActivityGetNumDroppedRecords(self, context: None, stream: Any, out: Any) -> int:
        out._obj.value, self.dropped = self.dropped, 0
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, out: Any) -> int:
        start = ctypes.addressof(buffer)
        at = self._reading.get(start, 0)
        if at >= valid.value:
            self._reading.pop(start, None)
            return MAX_LIMIT
        out._obj.value = start + at
        self._reading[start] = at + SIZES[c_uint32.from_address(start + at).value]
        return 0


def record_at(data: bytes) -> tuple[Any, int]:
    """Return a buffer with *data*, which must stay alive, and its address."""
    buffer = (c_uint64 * (len(data) // 8 + 1))()
    ctypes.memmove(buffer, data, len(data))
    return buffer, ctypes.addressof(buffer)
