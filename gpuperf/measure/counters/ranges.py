"""Read hardware counters over ranges of work by CUPTI: over each kernel, or over a window."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence

from gpuperf.measure.counters import cupti as api
from gpuperf.measure.counters.cupti import Cupti, Host, Image, NoCounters

# CUpti_ProfilerRange with its CUpti_ProfilerReplayMode: the profiler runs each kernel again, or
# the caller runs all kernels, or a window, again.
BY_KERNEL, ALL_KERNELS, BY_WINDOW = (1, 2), (1, 3), (2, 3)
MOST_RANGES = 512
MOST_PASSES = 64


class RangeProfiler:
    """Context that profiles ranges on one device; `metrics` are the counters of its chip.

    Raises: NoCounters.
    """

    def __init__(self, cupti: Cupti, device_index: int) -> None:
        self._cupti = cupti
        self._host = Host(cupti, api.RANGE_PROFILER, cupti.chip(device_index))
        self._profiler: object = None
        self._replayed, self._started, self._pushed = False, False, 0
        self._names: Sequence[str] = ()
        try:
            self.metrics = self._host.base_metrics()
        except NoCounters:
            self.close()
            raise

    def __enter__(self) -> RangeProfiler:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def configure(
        self, names: Sequence[str], how: tuple[int, int] = BY_KERNEL, most: int = MOST_RANGES
    ) -> int:
        """Set up to count *names* for *most* kernels or windows; return the number of passes."""
        # The library reads both images until the end.
        self._config, passes = self._host.configure(names)
        enable = api.RangesEnable(context=_context())
        self._profiler = self._cupti.call(enable).profiler
        self._names, self._replayed, self._most = names, how != BY_KERNEL, most
        self._image = self._new_image()
        kind, replay = how
        self._cupti.call(
            api.RangesConfig(
                profiler=self._profiler,
                bytes=self._config.size,
                config=self._config.data,
                image_bytes=self._image.size,
                image=self._image.data,
                range=kind,
                replay=replay,
                most_ranges=most,
                levels=1,
                least_level=1,
                target_level=int(self._replayed),
            )
        )
        return passes

    def profile(self, run: Callable[[], None]) -> list[tuple[float, ...]]:
        """Return the values of the configured names in each range of *run*.

        *run* waits for the device at its end. It runs once for each pass, or only once if the
        profiler replays each kernel itself.
        """
        for _ in range(MOST_PASSES):
            self.start()
            run()
            if self.stop() or not self._replayed:
                return self.decode()
        raise NoCounters("failed", f"{MOST_PASSES} passes were not enough")

    def push(self) -> None:
        """Begin a range, named by its number in the pass: all passes must have equal names."""
        name = f"{self._pushed:06}".encode()
        self._cupti.call(api.RangesPush(profiler=self._profiler, name=name))
        self._pushed += 1

    def pop(self) -> None:
        self._cupti.call(api.RangesPop(profiler=self._profiler))

    def close(self) -> None:
        """Stop and disable the profiler."""
        if self._started:
            with contextlib.suppress(NoCounters):  # the first error is the one to report
                self.stop()
        profiler, self._profiler = self._profiler, None
        try:
            if profiler is not None:
                self._cupti.call(api.RangesDisable(profiler=profiler))
        finally:
            self._host.close()

    def start(self) -> None:
        self._pushed = 0
        self._cupti.call(api.RangesStart(profiler=self._profiler))
        self._started = True

    def stop(self) -> bool:
        """End the pass, on an idle device; return whether it was the last."""
        self._started = False
        stopped = self._cupti.call(api.RangesStop(profiler=self._profiler))
        return bool(stopped.all_passes)

    def decode(self) -> list[tuple[float, ...]]:
        """Return the values of the configured names in each range."""
        call, image = self._cupti.call, self._image
        decoded = call(api.RangesDecode(profiler=self._profiler))
        if decoded.dropped:
            raise NoCounters("overflow", f"there are more than {self._most} kernels")
        info = call(api.RangesInfo(image=image.data, bytes=image.size))
        return [self._host.evaluate(image, index, self._names) for index in range(info.ranges)]

    def _new_image(self) -> Image:
        sized = self._cupti.call(
            api.RangesImageSize(
                profiler=self._profiler,
                names=api.names_array(self._names),
                count=len(self._names),
                most_ranges=self._most,
                most_nodes=self._most,
            )
        )
        image = Image.of(int(sized.bytes))
        self._cupti.call(
            api.RangesImage(profiler=self._profiler, bytes=image.size, image=image.data)
        )
        return image


def _context() -> ctypes.c_void_p:
    context = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    return context
