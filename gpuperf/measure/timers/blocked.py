"""What does the GPU itself spend on a call, with the cost of launching kept out?

A one-thread kernel holds the stream until everything is queued: events, stamps and the call. Then
the host lets it go, and the event pair sees the GPU work through a full queue. What an event pair
adds to a kernel's own time hardly depends on the kernel: this floor is measured in this process,
against CUPTI's kernel times, and subtracted. Two stamps outside the pair read `%globaltimer` and
`clock64()` on one SM, which is the SM clock inside the sample.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gpuperf.measure.timers.activity import kernel_durations
from gpuperf.measure.timers.timer import Call, CannotBlock, Sample, do_nothing
from gpuperf.model.contract import TimerName
from gpuperf.model.record import TimerFacts
from gpuperf.nvrtc import POINTER, U64, load_kernels, read_source

__all__ = ["BlockedTimer"]

# Longest that the blocker waits for the host. The first use of a kernel, or a call that itself
# waits for the device, runs into it: that is found in `admit`, long before a sample is taken.
DEADLINE_S = 1.0

# The flush reads this many times the L2, since its replacement is not strictly oldest-first.
FLUSH_L2_SIZES = 4

# A clock is told only when %globaltimer's tick is under this share of the stamped time.
CLOCK_PRECISION = 0.02

OWN_KERNELS = ("block", "stamp", "read_lines")  # of each window, beside the call's
FLOOR_WINDOWS = 40  # of each kernel that the floor is taken of


class BlockedTimer:
    """Event pairs behind a host-released blocker, on the current stream of one CUDA device."""

    name: TimerName = "blocked"

    def __init__(self, device: torch.device) -> None:
        self.watch: Callable[[], None] = do_nothing
        properties = torch.cuda.get_device_properties(device)
        self._kernels = load_kernels(
            read_source("timing.cu"),
            f"sm_{properties.major}{properties.minor}",
            ("empty", "globaltimer_tick", *OWN_KERNELS),
        )
        self._stream = torch.cuda.current_stream(device)
        self._sms = properties.multi_processor_count
        # Pinned memory is visible to both sides, so that releasing the stream is one store.
        self._shared = torch.zeros(2, dtype=torch.int32).pin_memory()
        self._flag = ctypes.c_int.from_address(self._shared.data_ptr())
        self._timed_out = ctypes.c_int.from_address(self._shared.data_ptr() + 4)
        self._stamps = torch.zeros(8, dtype=torch.int64).pin_memory()
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._flush_bytes = FLUSH_L2_SIZES * max(properties.L2_cache_size, 4 << 20)
        self._flush = torch.zeros(self._flush_bytes, dtype=torch.int8, device=device)
        self._sink = torch.zeros(1, dtype=torch.int32, device=device)
        self._tick_s = self._measure_tick()
        self.facts = self._measure_floor()

    def admit(self, call: Call) -> None:
        """Raises: CannotBlock when *call* waits for the device, or queues more than it holds."""
        self._window(call, gap_s=0.0, cold=False)

    def sample(self, call: Call, gap_s: float, cold: bool) -> Sample:
        """One call. Raises: CannotBlock."""
        window_s, clock_hz = self._window(call, gap_s, cold)
        return Sample(window_s - self.facts.floor_s, clock_hz)

    def _launch(self, name: str, args: tuple[int, ...], types: tuple[Any, ...]) -> None:
        self._kernels[name].launch(self._stream.cuda_stream, 1, 1, args, types)

    def _window(self, call: Call, gap_s: float, cold: bool) -> tuple[float, float | None]:
        """Seconds between the events around *call*, and the SM clock between the stamps."""
        if gap_s:
            time.sleep(gap_s)
        self._flag.value = 0
        self._timed_out.value = 0
        if cold:
            self._flush_caches()
        shared = self._shared.data_ptr()
        self._launch(
            "block", (shared, int(DEADLINE_S * 1e9), shared + 4), (POINTER, U64, POINTER)
        )
        try:
            self._launch("stamp", (self._stamps.data_ptr(),), (POINTER,))
            self._start.record(self._stream)
            call()
            self._end.record(self._stream)
            self._launch("stamp", (self._stamps.data_ptr() + 32,), (POINTER,))
        finally:
            self._flag.value = 1
        self.watch()
        torch.cuda.synchronize()
        if self._timed_out.value:
            raise CannotBlock(
                f"the call kept the host for over {DEADLINE_S:g} s or waited for the device"
            )
        return self._start.elapsed_time(self._end) * 1e-3, self._clock_hz()

    def _flush_caches(self) -> None:
        self._kernels["read_lines"].launch(
            self._stream.cuda_stream,
            self._sms * 4,
            512,
            (self._flush.data_ptr(), self._flush_bytes // 16, self._sink.data_ptr()),
            (POINTER, U64, POINTER),
        )

    def _clock_hz(self) -> float | None:
        """Cycles over nanoseconds between the stamps; None on two SMs, or within the tick."""
        start_ns, start_cycle, start_sm, _, end_ns, end_cycle, end_sm, _ = self._stamps.tolist()
        elapsed_s = (end_ns - start_ns) * 1e-9
        if start_sm != end_sm or elapsed_s <= 0 or self._tick_s > CLOCK_PRECISION * elapsed_s:
            return None
        return float((end_cycle - start_cycle) / elapsed_s)

    def _measure_tick(self) -> float:
        self._launch("globaltimer_tick", (self._stamps.data_ptr(),), (POINTER,))
        torch.cuda.synchronize()
        return float(self._stamps[0].item()) * 1e-9

    def _reference_calls(self) -> list[Call]:
        """Single kernels of the common sorts: elementwise ones and matmuls."""
        device = self._flush.device
        small, middle, large = (torch.ones(1 << p, device=device) for p in (10, 16, 18))
        squares = [torch.ones(n, n, dtype=torch.float16, device=device) for n in (128, 256)]
        return [
            lambda: torch.add(small, small),
            lambda: torch.exp(middle),
            lambda: torch.add(large, large),
            lambda: torch.mm(squares[0], squares[0]),
            lambda: torch.mm(squares[1], squares[1]),
        ]

    def _measure_floor(self) -> TimerFacts:
        """What a window adds to a kernel's own duration, which CUPTI tells.

        It differs a little between kernels (arguments, shared memory, writes to drain), and a
        kernel that does nothing has the least of it. So it is taken of five real ones: the floor
        is their median, and half the range of the middle three, and half a tick, its uncertainty.

        Each is taken at the lower quartile, and one that lies apart does not count: on an H200 with
        a cold L2 every fourth matmul or so starts 0.6 µs late, outside CUPTI's kernel time. Why is
        not established.
        """
        empty_s = self._kernel_seconds(self._empty)
        floors = []
        for call in self._reference_calls():
            window_s = _quartile(self._windows(call))
            kernel_s = self._kernel_seconds(call)
            if empty_s is None or kernel_s is None:
                return self._floor_without_cupti()
            floors.append(window_s - kernel_s)
        low, *_, high = sorted(floors)[1:-1]
        return TimerFacts(
            floor_s=statistics.median(floors),
            floor_uncertainty_s=(high - low + self._tick_s) / 2,
            empty_call_s=empty_s or 0.0,
            tick_s=self._tick_s,
        )

    def _empty(self) -> None:
        self._kernels["empty"].launch(
            self._stream.cuda_stream, self._sms, 256, (1, 2, 3, 4), (U64,) * 4
        )

    def _windows(self, call: Call) -> list[float]:
        call()
        torch.cuda.synchronize()
        return [self._window(call, gap_s=0.0, cold=True)[0] for _ in range(FLOOR_WINDOWS)]

    def _kernel_seconds(self, call: Call) -> float | None:
        """The duration of the one kernel of *call*, in windows like the timed ones."""
        durations = kernel_durations(lambda: self._windows(call), OWN_KERNELS)
        # One more call than windows: the first, which loads the kernel.
        if len(durations) != FLOOR_WINDOWS + 1:
            return None
        return _quartile(durations)

    def _floor_without_cupti(self) -> TimerFacts:
        """Bounds only: an empty kernel takes more than nothing, and less than each further one in
        the same window adds, which is its duration and the step to the next."""

        def many() -> None:
            for _ in range(8):
                self._empty()

        window_s = _quartile(self._windows(self._empty))
        step_s = (_quartile(self._windows(many)) - window_s) / 7
        return TimerFacts(
            floor_s=window_s - step_s / 2,
            floor_uncertainty_s=step_s / 2,
            empty_call_s=step_s / 2,
            tick_s=self._tick_s,
        )


def _quartile(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=4)[0]
