"""Take calls on the GPU between two stamps, with all launches queued beforehand.

A one-thread kernel blocks the stream until everything is queued; then the host releases it, and two
stamps enclose the call. A stamp is `%globaltimer` and `clock64()` on one SM: the cycles between two
stamps over the time between them are the SM clock. The kernel of the first stamp runs for 2 µs, in
which the front end fetches the launches after it. Without that, on an H200, every fourth matmul
started 0.6 µs late.
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure.timers.timer import Call, CannotBlock, OpenTimer, do_nothing
from gpuperf.model.contract import Cache
from gpuperf.nvrtc import POINTER, U64, load_kernels, read_source

# Seconds that the blocker waits for the host at most. The first use of a kernel, or a call that
# waits for the device itself, takes longer: `admit` detects that before any sample is taken.
DEADLINE_S = 1.0

# The flush touches this many times the bytes of the L2, which does not strictly evict the oldest.
FLUSH_L2_SIZES = 4

OPEN_CYCLES = 4000  # 2 µs: longer than any fetch of a launch
COARSE_TICK_S = 100e-9  # with a coarser %globaltimer (1 µs on some cards), events enclose the call

# The SM clock is known only if %globaltimer's tick is under this share of the stamped time.
CLOCK_PRECISION = 0.02

BLOCK, OPEN, CLOSE = "gpuperf_block", "gpuperf_open", "gpuperf_close"
HAND_OVER = "gpuperf_hand_over"
FLUSHES = READ_LINES, WRITE_LINES = "gpuperf_read_lines", "gpuperf_write_lines"
OWN_KERNELS = (BLOCK, OPEN, CLOSE, HAND_OVER, *FLUSHES)

# On an H200 with a cold L2, one launch in this many begins 0.6 to 0.9 µs later than the others,
# whatever it launches, by its place in the queue since the process began; a CUDA graph's do not.
LAUNCH_PERIOD = 4

STAMP = 4  # words of a stamp: nanoseconds, cycles, SM, one unused


class Reading(NamedTuple):
    """One call in a window: the seconds between the two stamps, the floor included.

    `clock_hz` is the SM clock inside the window, `before_hz` just before it; `queued_s` is how long
    the host took to queue the call; `cycles` are the SM cycles between the stamps, None where the
    stamps are of two SMs.
    """

    window_s: float
    clock_hz: float | None
    before_hz: float | None
    queued_s: float
    cycles: int | None = None


class Ranges(Protocol):
    """Hardware counters that count from `push` to `pop`."""

    def push(self) -> None: ...

    def pop(self) -> None: ...


class WindowTimer(OpenTimer):
    """Base of timers that take their samples in a window."""

    def __init__(self, window: Window) -> None:
        self.window = window

    @property
    def watch(self) -> Callable[[], None]:
        """A function that is called on the host while a sample runs."""
        return self.window.watch

    @watch.setter
    def watch(self, watch: Callable[[], None]) -> None:
        self.window.watch = watch


class Window:
    """Windows around calls on the current stream of one CUDA device, one call at a time.

    `watch` is called while the device works. Raises: CannotMeasure without NVRTC.
    """

    def __init__(self, device: torch.device) -> None:
        self.watch: Callable[[], None] = do_nothing
        self.device = device
        properties = torch.cuda.get_device_properties(device)
        self._kernels = load_kernels(
            read_source("timing.cu"),
            f"sm_{properties.major}{properties.minor}",
            ("gpuperf_empty", "gpuperf_tick", *OWN_KERNELS),
        )
        self._stream = torch.cuda.current_stream(device)
        self._sms = properties.multi_processor_count
        # Pinned memory is visible to both sides, so that releasing the stream is one store.
        self._shared = torch.zeros(2, dtype=torch.int32).pin_memory()
        self._flag = ctypes.c_int.from_address(self._shared.data_ptr())
        self._timed_out = ctypes.c_int.from_address(self._shared.data_ptr() + 4)
        self._stamps = torch.zeros(4 * STAMP, dtype=torch.int64, device=device)
        self._host_stamps = torch.zeros(4 * STAMP, dtype=torch.int64).pin_memory()
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._flush_bytes = FLUSH_L2_SIZES * max(properties.L2_cache_size, 4 << 20)
        self._flush = torch.zeros(self._flush_bytes, dtype=torch.int8, device=device)
        self._sink = torch.zeros(1, dtype=torch.int32, device=device)
        self.tick_s = self._measure_tick()
        self._by_events = self.tick_s > COARSE_TICK_S

    def take(self, call: Call, idle_s: float = 0.0, cache: Cache = "hot") -> Reading:
        """Take *call* after *idle_s* of rest, with the L2 in the state *cache*.

        For `hot` and `rotate` nothing is flushed: the L2 is as the last call left it, and under
        `rotate` the caller's *call* uses other data each time.

        Raises: CannotBlock if *call* waits for the device, or queues more than the queue can hold.
        """
        if idle_s:
            time.sleep(idle_s)
        self._flag.value = 0
        self._timed_out.value = 0
        self.flush(cache)
        shared, stamps = self._shared.data_ptr(), self._stamps.data_ptr()
        self._launch(
            BLOCK,
            (shared, int(DEADLINE_S * 1e9), shared + 4, stamps),
            (POINTER, U64, POINTER, POINTER),
        )
        queued_s = 0.0
        try:
            self._launch(OPEN, (stamps + 2 * STAMP * 8, OPEN_CYCLES), (POINTER, U64))
            if self._by_events:
                self._start.record(self._stream)
            began = time.perf_counter()
            call()
            queued_s = time.perf_counter() - began
            if self._by_events:
                self._end.record(self._stream)
            self._launch(CLOSE, (stamps + 3 * STAMP * 8,), (POINTER,))
            self._launch(
                HAND_OVER,
                (stamps, self._host_stamps.data_ptr(), 4 * STAMP),
                (POINTER, POINTER, U64),
            )
        finally:
            self._flag.value = 1
        self.watch()
        torch.cuda.synchronize()
        if self._timed_out.value:
            raise CannotBlock(
                f"the call kept the host for over {DEADLINE_S:g} s or waited for the device"
            )
        words = self._host_stamps.tolist()
        window_s = (words[3 * STAMP] - words[2 * STAMP]) * 1e-9
        if self._by_events:
            window_s = self._start.elapsed_time(self._end) * 1e-3
        clocks = self._clock_hz(words, 2), self._clock_hz(words, 0)
        return Reading(window_s, *clocks, queued_s, _cycles(words))

    def take_period(
        self, call: Call, launches: int, idle_s: float = 0.0, cache: Cache = "hot"
    ) -> list[Reading]:
        """Take *call*, of *launches* kernels, once for each of the queue's `LAUNCH_PERIOD` places.

        With an odd number of launches, each window begins at another place; an even number is made
        odd by an empty kernel before the window. Raises: CannotBlock.
        """
        own = 4 + (cache in ("cold", "cold-dirty"))  # BLOCK, OPEN, CLOSE, HAND_OVER, the flush
        readings = []
        for _ in range(LAUNCH_PERIOD):
            if (own + launches) % 2 == 0:
                self.empty()
            readings.append(self.take(call, idle_s, cache))
        return readings

    def count(
        self, call: Call, spin_cycles: int, idle_s: float, cache: Cache, ranges: Ranges
    ) -> int | None:
        """Take *call* in a range of *ranges*, behind a kernel that spins until the call is queued.

        Return the SM cycles between the two stamps; None if they are of two SMs. The blocker of
        `take` is not used, since the counters would count its wait for the host.
        """
        if idle_s:
            time.sleep(idle_s)
        self.flush(cache)
        stamps = self._stamps.data_ptr()
        ranges.push()
        try:
            self._launch(OPEN, (stamps + 2 * STAMP * 8, spin_cycles), (POINTER, U64))
            call()
            self._launch(CLOSE, (stamps + 3 * STAMP * 8,), (POINTER,))
        finally:
            ranges.pop()
        torch.cuda.synchronize()
        return _cycles(self._stamps.tolist())

    def stream(self, call: Call, calls: int, ahead: int) -> Iterator[tuple[float, float | None]]:
        """Run batches of *calls* without a pause; yield the seconds and the SM clock of each batch.

        *ahead* batches are queued before the first is waited for, so that the device always has
        work. Close the iterator to stop it.
        """
        slots = ahead + 2
        stamps = torch.zeros(slots * STAMP, dtype=torch.int64).pin_memory()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(slots)]
        torch.cuda.synchronize()

        def mark(index: int) -> None:
            place = index % slots
            self._launch(CLOSE, (stamps.data_ptr() + place * STAMP * 8,), (POINTER,))
            marks[place].record(self._stream)

        mark(0)
        queued = 0
        try:
            for batch in itertools.count():
                while queued < batch + ahead:
                    for _ in range(calls):
                        call()
                    queued += 1
                    mark(queued)
                start, end = marks[batch % slots], marks[(batch + 1) % slots]
                self.watch()
                end.synchronize()
                words = stamps.view(slots, STAMP)[[batch % slots, (batch + 1) % slots]].flatten()
                yield start.elapsed_time(end) * 1e-3, self._clock_hz(words.tolist(), 0)
        finally:
            torch.cuda.synchronize()  # queued kernels still write to the stamps

    def empty(self) -> None:
        """Launch a kernel that does nothing, with a block for every SM."""
        self._kernels["gpuperf_empty"].launch(
            self._stream.cuda_stream, self._sms, 256, (1, 2, 3, 4), (U64,) * 4
        )

    def _launch(self, name: str, args: tuple[int, ...], types: tuple[Any, ...]) -> None:
        self._kernels[name].launch(self._stream.cuda_stream, 1, 1, args, types)

    def flush(self, cache: Cache) -> None:
        """Queue a kernel that fills the L2 with clean (`cold`) or dirty (`cold-dirty`) lines.

        Nothing is queued for `hot` and `rotate`.
        """
        if cache in ("hot", "rotate"):
            return
        lines = self._flush_bytes // 16
        name, args, types = (
            (
                READ_LINES,
                (self._flush.data_ptr(), lines, self._sink.data_ptr()),
                (POINTER, U64, POINTER),
            )
            if cache == "cold"
            else (WRITE_LINES, (self._flush.data_ptr(), lines), (POINTER, U64))
        )
        self._kernels[name].launch(self._stream.cuda_stream, self._sms * 4, 512, args, types)

    def _clock_hz(self, words: list[int], first: int) -> float | None:
        """Return the SM clock in hertz between stamp number *first* and the next one.

        None if the stamps are of two SMs, or if the time between them is short against the tick.
        """
        start_ns, start_cycle, start_sm, _ = words[first * STAMP : (first + 1) * STAMP]
        end_ns, end_cycle, end_sm, _ = words[(first + 1) * STAMP : (first + 2) * STAMP]
        elapsed_s = (end_ns - start_ns) * 1e-9
        if start_sm != end_sm or elapsed_s <= 0 or self.tick_s > CLOCK_PRECISION * elapsed_s:
            return None
        return (end_cycle - start_cycle) / elapsed_s

    def _measure_tick(self) -> float:
        self._launch("gpuperf_tick", (self._host_stamps.data_ptr(),), (POINTER,))
        torch.cuda.synchronize()
        return float(self._host_stamps[0].item()) * 1e-9


@cache
def open_window(device: torch.device) -> Window:
    """Return the one window of *device* in this process. Raises: CannotMeasure."""
    if device.type != "cuda" or torch.version.hip:
        raise CannotMeasure("the timer 'blocked' needs an NVIDIA GPU", "choose another --timer")
    return Window(device)


def _cycles(words: list[int]) -> int | None:
    """Return the cycles between the stamps of OPEN and CLOSE, if they are on one SM."""
    (_, start, start_sm, _), (_, end, end_sm, _) = words[2 * STAMP : 3 * STAMP], words[3 * STAMP :]
    return end - start if start_sm == end_sm else None
