"""Watch the traffic of the whole device from a process that runs no submission.

The counters of DRAM are sampled for the card (PM sampling), so they show what other processes do.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field

import torch

from gpuperf.judge.protocol import Watched
from gpuperf.measure.counters.cupti import NoCounters
from gpuperf.measure.counters.device import open_counters
from gpuperf.measure.counters.dram import DramSampler, Traffic
from gpuperf.measure.error_origin import first_line

LONGEST_S = 0.6  # seconds of a window that is watched, about
IDLE_S = 0.05  # seconds of an idle device, whose traffic is subtracted


@dataclass
class Witness:
    """Counts the traffic of the device of *device*; `missing` says why it cannot, if it cannot."""

    device: torch.device
    l2_bytes: int | None
    missing: str = ""
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _sampler: DramSampler | None = None
    _factor: float = 1.0
    _running: bool = False
    _idle: Traffic = field(default_factory=lambda: Traffic(0.0, 0.0, 1.0))

    def begin(self) -> None:
        """Begin to count, unless that is known to fail."""
        if self.missing:
            return
        if self._running:  # the window before ended without an answer
            self.close()
        try:
            sampler = self._sampler or self._open()
            sampler.count(_nothing)  # the first sample holds earlier traffic
            sampler.begin()
            self._running = True
        except (NoCounters, RuntimeError, OSError) as error:
            self._give_up(error)

    def end(self, pause_s: float) -> Watched:
        """Return what was counted since `begin`, and what is counted in a pause after it."""
        self._running = False
        if self._sampler is None:
            return Watched(missing=self.missing or "nothing was begun")
        try:
            seen = self._sampler.end()
            pause = self._sampler.count(lambda: time.sleep(pause_s))
        except NoCounters as error:
            if error.kind == "overflow":  # this window was too long
                return Watched(missing=str(error))
            self._give_up(error)
            return Watched(missing=self.missing)
        except (RuntimeError, OSError) as error:
            self._give_up(error)
            return Watched(missing=self.missing)
        read, written = self._less_idle(seen)
        return Watched(
            read, written, seen.busy_s, pause.seconds, sum(self._less_idle(pause)), pause.busy_s
        )

    def _open(self) -> DramSampler:
        """Open and calibrate the counters. Raises: NoCounters."""
        counters = open_counters(self.device, self.l2_bytes)
        sampler, known = self._held.enter_context(counters.sampler(LONGEST_S))
        torch.cuda.synchronize(self.device)
        sampler.count(_nothing)
        self._idle = sampler.count(lambda: time.sleep(IDLE_S))
        self._sampler, self._factor = sampler, known.factor
        return sampler

    def close(self) -> None:
        """Release the counters; `begin` opens them again."""
        self._sampler, self._running = None, False
        with contextlib.suppress(NoCounters):
            self._held.close()

    def _give_up(self, error: Exception) -> None:
        self.missing = f"the counters of DRAM: {first_line(error)}"
        self.close()

    def _less_idle(self, seen: Traffic) -> tuple[float, float]:
        share = seen.seconds / self._idle.seconds
        read, written = (
            seen.read - share * self._idle.read,
            seen.written - share * self._idle.written,
        )
        return max(0.0, read / self._factor), max(0.0, written / self._factor)


def _nothing() -> None:
    """Do nothing while counters run."""
