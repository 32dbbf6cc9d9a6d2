"""Count the bytes through DRAM while a program runs at full speed.

The memory controllers count bytes, and the card samples these counters at intervals (PM sampling),
without a change to the program. The counts are the whole card's traffic between start and stop.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import NamedTuple

from gpuperf.measure.counters import cupti as api
from gpuperf.measure.counters.cupti import Cupti, Host, Image, NoCounters
from gpuperf.model.metrics import BYTES, choose, combine

# Size of the hardware's buffer. On an H200 2 MiB hold all samples; arming takes 0.06 s with 2 MiB
# and 0.10 s with 64 MiB.
BUFFER_BYTES = 16 << 20
MOST_SAMPLES = 1024
LEAST_INTERVAL_S = 100e-6
BUSY_BYTES_PER_S = 2e9  # an idle H200 moves 0.04 GB/s, and one kernel of few bytes more than this
BY_CLOCK, BY_TIME = 0, 1  # CUpti_PmSampling_TriggerMode
CYCLES_PER_S = 1.5e9  # about the system clock, where the trigger counts its cycles
END_OF_RECORDS = 2


class Traffic(NamedTuple):
    """Bytes through DRAM, the seconds of the host's clock in which they were counted, and seconds
    with more traffic than an idle card has."""

    read: float
    written: float
    seconds: float
    busy_s: float = 0.0


class DramSampler:
    """Context that counts the DRAM bytes of one device, for at most *longest_s* seconds at a time.

    Raises: NoCounters.
    """

    def __init__(self, cupti: Cupti, device_index: int, longest_s: float) -> None:
        self._cupti = cupti
        self._interval_s = max(LEAST_INTERVAL_S, 2 * longest_s / MOST_SAMPLES)
        self._host = Host(cupti, api.PM_SAMPLING, cupti.chip(device_index))
        self._sampler = None
        self._began = 0.0
        try:
            self._chosen = choose(BYTES, self._host.base_metrics())
            if set(self._chosen) != set(BYTES):
                raise self._no_metrics()
            self._names = [name for group in self._chosen.values() for name in group]
            self._config, passes = self._host.configure(self._names)
            if passes != 1:
                message = f"reads and writes take {passes} passes on this chip, not one"
                raise NoCounters("unsupported", message)
            enabled = cupti.call(api.SamplingEnable(device=device_index))
            self._sampler = enabled.sampler
            self._configure()
        except NoCounters:
            self.close()
            raise

    def _no_metrics(self) -> NoCounters:
        """Return the error of a chip without DRAM counters, or with new names for them.

        A chip that shares the CPU's memory has none.
        """
        message = "this chip has no counters of DRAM bytes"
        if any(name.startswith("dram__bytes") for name in self._host.base_metrics()):
            return NoCounters("unknown-metric", f"{message} under a name that gpuperf knows")
        return NoCounters("unsupported", message)

    def _configure(self) -> None:
        """Sample by time, or by clock cycles where the chip has no such timer (Turing, GA100)."""
        for trigger, unit in ((BY_TIME, 1e9), (BY_CLOCK, CYCLES_PER_S)):
            try:
                self._cupti.call(
                    api.SamplingConfig(
                        sampler=self._sampler,
                        bytes=self._config.size,
                        config=self._config.data,
                        buffer_bytes=BUFFER_BYTES,
                        interval=int(self._interval_s * unit),
                        trigger=trigger,
                    )
                )
            except NoCounters as error:
                if trigger == BY_CLOCK or error.kind in ("permission", "busy", "virtual-gpu"):
                    raise
            else:
                break
        image = self._cupti.call(
            api.SamplingImageSize(
                sampler=self._sampler,
                names=api.names_array(self._names),
                count=len(self._names),
                most_samples=MOST_SAMPLES,
            )
        )
        self._image = Image.of(int(image.bytes))

    def count(self, run: Callable[[], None]) -> Traffic:
        """Count the traffic of *run*, which waits for the device at its end. Raises: NoCounters."""
        self.begin()
        try:
            run()
        except BaseException:
            with contextlib.suppress(NoCounters):  # the first error is the one to report
                self._cupti.call(api.SamplingStop(sampler=self._sampler))
            raise
        return self.end()

    def begin(self) -> None:
        """Start to count. Raises: NoCounters."""
        image, call = self._image, self._cupti.call
        call(api.SamplingImage(sampler=self._sampler, bytes=image.size, image=image.data))
        call(api.SamplingStart(sampler=self._sampler))
        self._began = time.perf_counter()

    def end(self) -> Traffic:
        """Return the traffic since `begin`, of a device that is idle by now. Raises: NoCounters."""
        image, call = self._image, self._cupti.call
        time.sleep(2 * self._interval_s)  # so that the last sample is complete: others are lost
        seconds = time.perf_counter() - self._began
        call(api.SamplingStop(sampler=self._sampler))
        decoded = call(
            api.SamplingDecode(sampler=self._sampler, image=image.data, bytes=image.size)
        )
        info = call(api.SamplingInfo(image=image.data, bytes=image.size))
        if decoded.overflow or decoded.stop != END_OF_RECORDS:
            raise NoCounters("overflow", f"{seconds:.3g} s gave more samples than the buffer holds")
        if not info.completed:
            raise NoCounters("no-samples", f"the counters gave no sample in {seconds:.3g} s")
        totals, busy = [0.0] * len(self._names), 0
        for index in range(info.completed):
            values = self._host.evaluate(image, index, self._names)
            busy += sum(values) > BUSY_BYTES_PER_S * self._interval_s
            for place, value in enumerate(values):
                totals[place] += value
        moved = combine(self._chosen, self._names, totals)
        if set(moved) != set(BYTES):
            raise NoCounters("no-samples", "the counters gave samples without values")
        read, written = moved["dram_read_bytes"], moved["dram_written_bytes"]
        return Traffic(read, written, seconds, busy * self._interval_s)

    def close(self) -> None:
        """Disable the sampling of the counters. Raises: NoCounters."""
        try:
            if self._sampler is not None:
                self._cupti.call(api.SamplingDisable(sampler=self._sampler))
        finally:
            self._sampler = None
            self._host.close()

    def __enter__(self) -> DramSampler:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
