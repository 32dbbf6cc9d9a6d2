"""What does each pass over a program's steps do, and what does it bring back?

A pass begins and ends with an idle device; in between it leaves the program alone as far as it can.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from gpuperf.measure.counters import NoCounters, open_counters
from gpuperf.measure.watching import Watch
from gpuperf.model.program import MARK, Passed, PassName

__all__ = ["Accounting", "Counting", "Pass", "Plain", "Trace", "open_pass"]

OTHER = "the program uses torch.profiler itself, and there is one at a time"


class Pass(Protocol):
    """One pass over some steps of a region: `start`, then `begin` and `end` of each, `finish`."""

    def start(self) -> None:
        """Before the first step. Raises: RuntimeError, NoCounters where it cannot be had."""

    def begin(self) -> None:
        """A step begins."""

    def end(self) -> None:
        """It ends."""

    def finish(self) -> Passed:
        """What was found."""

    def abandon(self) -> None:
        """Leave no trace."""


class _Base:
    """Counts steps, and knows whether a GPU is at work."""

    name: PassName = "plain"

    def __init__(self, region: str) -> None:
        self.region, self.steps = region, 0
        self.cuda = torch.cuda.is_available() and torch.cuda.is_initialized()

    def start(self) -> None:
        self.synchronize()

    def begin(self) -> None:
        pass

    def end(self) -> None:
        self.steps += 1

    def abandon(self) -> None:
        pass

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


class Plain(_Base):
    """The time of each step, by events in the stream: nothing waits for them."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._marks: list[Any] = []
        self._began = self._ended = 0.0

    def start(self) -> None:
        super().start()
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        self._began = time.perf_counter()

    def begin(self) -> None:
        self._mark()

    def end(self) -> None:
        super().end()
        self._mark()

    def _mark(self) -> None:
        if not self.cuda:
            self._marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def finish(self) -> Passed:
        self.synchronize()
        wall_s = time.perf_counter() - self._began
        pairs = zip(self._marks[::2], self._marks[1::2], strict=False)
        seconds = tuple(
            first.elapsed_time(last) * 1e-3 if self.cuda else last - first for first, last in pairs
        )
        peak = torch.cuda.max_memory_allocated() if self.cuda else None
        return Passed(self.region, "plain", self.steps, seconds, wall_s, peak)


class Trace(_Base):
    """Kernels and operators, by torch's profiler, in a file that the supervisor reads."""

    name: PassName = "trace"

    def __init__(self, region: str, path: Path) -> None:
        super().__init__(region)
        self._path = path
        self._profile: Any = None
        self._step: Any = None
        self._began = 0.0
        self._lost = False
        self._restore: Callable[[], None] = lambda: None

    def start(self) -> None:
        if torch.autograd._profiler_enabled():
            raise RuntimeError(OTHER)
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        # Events as Python objects would take 0.6 ms each: only the file is wanted.
        self._profile = profile(activities=activities, record_shapes=True, acc_events=False)
        super().start()
        self._profile.start()
        self._yield_to_others()
        self._began = time.perf_counter()

    def _yield_to_others(self) -> None:
        """There is one profiler at a time: let one that the program starts have its place."""
        from torch.autograd import profiler

        prepare = profiler.profile._prepare_trace

        def first(other: Any, *arguments: Any) -> Any:
            self._lost = True
            self.abandon()
            return prepare(other, *arguments)

        profiler.profile._prepare_trace = first
        self._restore = lambda: setattr(profiler.profile, "_prepare_trace", prepare)

    def begin(self) -> None:
        if self._lost:
            return
        self._step = record_function(f"{MARK}{self.region}")
        self._step.__enter__()

    def end(self) -> None:
        super().end()
        self._close_step()

    def _close_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def finish(self) -> Passed:
        if self._lost:
            raise RuntimeError(OTHER)
        self.synchronize()
        wall_s = time.perf_counter() - self._began
        self._close_step()
        self._restore()
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._path))
        self._profile = None
        return Passed(self.region, "trace", self.steps, wall_s=wall_s, trace=str(self._path))

    def abandon(self) -> None:
        found, self._profile = self._profile, None
        self._restore()
        self._close_step()
        if found is not None:
            with contextlib.suppress(RuntimeError):
                found.stop()


class Accounting(_Base):
    """Every operator of some steps, with its tensors; and torch's own count of the FLOPs of each
    beside it."""

    name: PassName = "accounting"

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._watch = Watch()
        self._flops: list[int] = []
        self._counter: Any = None  # of the step under way
        self._ended = self._missed = 0  # of the calls, by the last step that ended
        self._full = False
        self._within = contextlib.ExitStack()

    def begin(self) -> None:
        self._ended, self._missed = len(self._watch.seen), self._watch.missed
        if not self._full:
            self._counter = self._within.enter_context(FlopCounterMode(display=False))
            self._watch.forget()
            self._within.enter_context(self._watch)

    def end(self) -> None:
        counter, self._counter = self._counter, None
        self._within.close()
        if counter is None:
            return
        if self._watch.full and self.steps:  # a part of a step is none
            self._full = True
            self._drop()
            return
        super().end()
        self._flops.append(int(counter.get_total_flops()))
        self._full = self._watch.full

    def _drop(self) -> None:
        """What was written down of a step that does not count."""
        del self._watch.seen[self._ended :]
        self._watch.missed = self._missed

    def finish(self) -> Passed:
        if self._counter is not None:
            self._drop()
        self.abandon()
        missed = self._watch.missed
        return Passed(
            self.region, "accounting", self.steps, seen=tuple(self._watch.seen),
            flop_counts=tuple(self._flops), tf32=_tf32(),
            reason=f"{missed} calls could not be written down" if missed else "",
        )  # fmt: skip

    def abandon(self) -> None:
        self._counter = None
        self._within.close()


def _tf32() -> bool:
    """Whether fp32 matmuls run in tf32: what the program left in torch's settings."""
    precision = str(torch.get_float32_matmul_precision())
    return torch.cuda.is_available() and precision != "highest"


class Counting(_Base):
    """The bytes through DRAM of all steps together, at full speed."""

    name: PassName = "counters"

    def __init__(self, region: str, longest_s: float) -> None:
        super().__init__(region)
        self._longest_s = longest_s
        self._within = contextlib.ExitStack()
        self._sampler: Any = None
        self._known: Any = None
        self._counting = False

    def start(self) -> None:
        if not self.cuda:
            raise NoCounters("unsupported", "only NVIDIA GPUs have counters that gpuperf reads")
        device = torch.device("cuda", torch.cuda.current_device())
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        counters = open_counters(device, l2_bytes)
        self._sampler, self._known = self._within.enter_context(counters.sampler(self._longest_s))
        super().start()

    def begin(self) -> None:
        if not self._counting:
            self._counting = True
            self.synchronize()
            self._sampler.begin()

    def finish(self) -> Passed:
        self.synchronize()
        try:
            moved = self._sampler.end()
        finally:
            self._within.close()
        each = self._known.factor * self.steps
        counted = {
            "dram_read_bytes": moved.read / each, "dram_written_bytes": moved.written / each,
            "dram_factor": float(self._known.factor), "dram_ratio": self._known.ratio,
            "dram_uncertainty_bytes": self._known.error * (moved.read + moved.written) / each,
        }  # fmt: skip
        return Passed(self.region, "counters", self.steps, wall_s=moved.seconds, counters=counted)

    def abandon(self) -> None:
        self._within.close()


def open_pass(name: PassName, region: str, trace: Path, longest_s: float) -> Pass:
    """The pass *name* of *region*: a trace goes to the file *trace*, counters count for at most
    *longest_s*."""
    if name == "trace":
        return Trace(region, trace)
    if name == "counters":
        return Counting(region, longest_s)
    return Accounting(region) if name == "accounting" else Plain(region)
