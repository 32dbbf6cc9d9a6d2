"""What does each pass over a program's steps do, and what does it bring back?

A pass begins and ends with an idle device; in between it leaves the program alone as far as it can.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode, _push_mode

from gpuperf.measure.counters import NoCounters, open_counters
from gpuperf.measure.watching import Flops, Watch
from gpuperf.model.program import MARK, PART, Passed, PassName

__all__ = [
    "Accounting", "Counting", "Light", "Pass", "Plain", "Trace", "capturing", "on_gpu", "open_pass",
]  # fmt: skip

OTHER = "the program uses torch.profiler itself, and there is one at a time"
# A trace ends on the thread that it began on, or the process dies; a thread may end before.
ELSEWHERE = "its steps are on another thread than the main one, and are not traced"
MODE = "the program has a dispatch mode of its own, which ours would get between"
BETWEEN = "bytes between its steps would count: mark the whole step"
GAP = 0.02  # of a pass: more than this between its steps is no part of them
OWN_S = 20e-6  # that a mark may take itself


class Pass(Protocol):
    """One pass over some steps of a region: `start`, then `begin` and `end` of each, `finish`.

    `finish` may come in a step, which does not count then.
    """

    name: PassName

    def start(self) -> None:
        """Before the first step. Raises: RuntimeError, NoCounters where it cannot be had."""

    def begin(self) -> None:
        """A step begins."""

    def end(self) -> None:
        """It ends."""

    def pause(self) -> None:
        """Between its steps another region's pass starts."""

    def finish(self) -> Passed:
        """What was found. Raises: RuntimeError where it is of no use."""

    def abandon(self) -> None:
        """Leave no trace."""


class _Base:
    """Counts steps, and knows whether a GPU is at work: none is asked for that the program has not
    taken."""

    name: PassName = "plain"

    def __init__(self, region: str) -> None:
        self.region, self.steps = region, 0
        self.cuda = torch.cuda.is_initialized()

    def start(self) -> None:
        self.synchronize()

    def begin(self) -> None:
        pass

    def end(self) -> None:
        self.steps += 1

    def pause(self) -> None:
        pass

    def abandon(self) -> None:
        pass

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


class _Timed(_Base):
    """Where its steps begin and end, by the host's clock and by events in the stream: nothing waits
    for those."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._clocks: list[float] = []
        self._events: list[Any] = []

    def begin(self) -> None:
        self._mark()

    def end(self) -> None:
        super().end()
        self._mark()

    def _mark(self) -> None:
        self._clocks.append(time.perf_counter())
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)

    def steps_s(self) -> tuple[float, ...]:
        """The seconds of each step that ended."""
        return tuple(self._between(i, i + 1) for i in range(0, 2 * self.steps, 2))

    def whole_s(self) -> float:
        """From the beginning of the first to the end of the last."""
        return self._between(0, 2 * self.steps - 1)

    def _between(self, first: int, last: int) -> float:
        """Seconds between two marks, by the device's clock where it is a GPU."""
        if self.cuda:
            return float(self._events[first].elapsed_time(self._events[last])) * 1e-3
        return self._clocks[last] - self._clocks[first]

    def apart(self) -> bool:
        """Whether something else is done between its steps, by the host or by the device."""
        ends = range(1, 2 * self.steps - 1, 2)
        host = sum(max(0.0, self._clocks[i + 1] - self._clocks[i] - OWN_S) for i in ends)
        device = sum(max(0.0, self._between(i, i + 1) - OWN_S) for i in ends)
        return max(host, device) > GAP * self.whole_s()


class Plain(_Timed):
    """The time of each step."""

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._peak_bytes = 0

    def start(self) -> None:
        super().start()
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def pause(self) -> None:
        """Another pass will reset the peak."""
        if self.cuda:
            self._peak_bytes = max(self._peak_bytes, torch.cuda.max_memory_allocated())

    def finish(self) -> Passed:
        self.synchronize()
        self.pause()
        seconds = self.steps_s()
        wall_s = sum(seconds) if self.apart() else self.whole_s()
        peak = self._peak_bytes if self.cuda else None
        return Passed(self.region, "plain", self.steps, seconds, wall_s, peak)


class Trace(_Base):
    """Kernels and operators, by torch's profiler, in a file that the supervisor reads."""

    name: PassName = "trace"

    def __init__(self, region: str, path: Path, cuda: bool = False) -> None:
        """With *cuda* also of a GPU that the program is about to take."""
        super().__init__(region)
        self._path, self._on_gpu = path, cuda or self.cuda
        self._profile: Any = None
        self._step: Any = None
        self._parts: list[Any] = []
        self._began = 0.0
        self._lost = False
        self._restore: Callable[[], None] = lambda: None

    def start(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(ELSEWHERE)
        if torch.autograd._profiler_enabled():
            raise RuntimeError(OTHER)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Events as Python objects would take 0.6 ms each: only the file is wanted.
            self._profile = profile(
                activities=self._activities(), record_shapes=True, acc_events=False
            )
        super().start()
        self._profile.start()
        self._yield_to_others()
        self._began = time.perf_counter()

    def _activities(self) -> list[ProfilerActivity]:
        on_gpu = [ProfilerActivity.CUDA] if self._on_gpu else []
        return [ProfilerActivity.CPU, *on_gpu]

    def _yield_to_others(self) -> None:
        """There is one profiler at a time: let one that the program starts have its place."""
        from torch.autograd import profiler

        theirs = [(profiler.profile, "_prepare_trace"), (profiler.emit_nvtx, "__enter__"),
                  (profiler.emit_itt, "__enter__")]  # fmt: skip
        own = [(kind, name, getattr(kind, name)) for kind, name in theirs]

        def yields(prepare: Callable[..., Any]) -> Callable[..., Any]:
            def first(other: Any, *arguments: Any) -> Any:
                self._lost = True
                with contextlib.suppress(Exception):
                    self.abandon()
                return prepare(other, *arguments)

            return first

        def restore() -> None:
            for kind, name, prepare in own:
                setattr(kind, name, prepare)

        for kind, name, prepare in own:
            setattr(kind, name, yields(prepare))
        self._restore = restore

    def begin(self) -> None:
        if self._lost:
            return
        self._step = record_function(f"{MARK}{self.region}")
        self._step.__enter__()

    def end(self) -> None:
        super().end()
        self._close_step()

    def enter(self, name: str) -> None:
        """A region inside the step begins."""
        part = record_function(f"{MARK}{self.region}{PART}{name}")
        part.__enter__()
        self._parts.append(part)

    def leave(self) -> None:
        """The last one ends; none, if it began before the pass."""
        if self._parts:
            self._parts.pop().__exit__(None, None, None)

    def _close_step(self) -> None:
        while self._parts:
            self.leave()
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def finish(self) -> Passed:
        if self._lost:
            raise RuntimeError(OTHER)
        self.cuda = torch.cuda.is_initialized()
        self.synchronize()
        wall_s = time.perf_counter() - self._began
        self._close_step()
        self._restore()
        self._profile.stop()
        self._profile.export_chrome_trace(str(self._path))
        self._profile = None
        return Passed(self.region, self.name, self.steps, wall_s=wall_s, trace=str(self._path))

    def abandon(self) -> None:
        found, self._profile = self._profile, None
        self._restore()
        self._close_step()
        if found is not None:
            with contextlib.suppress(Exception):
                found.stop()


class Light(Trace):
    """Kernels and calls into CUDA alone: operators would slow the host down, which then waits less
    for the device."""

    name: PassName = "light"

    def _activities(self) -> list[ProfilerActivity]:
        return [ProfilerActivity.CUDA]

    def begin(self) -> None:
        pass

    def enter(self, name: str) -> None:
        pass


class Accounting(_Base):
    """Every operator of some steps, with its tensors; and torch's own count of the FLOPs of each
    beside it."""

    name: PassName = "accounting"

    def __init__(self, region: str) -> None:
        super().__init__(region)
        self._watch = Watch()
        self._flops: list[int] = []
        self._counter: Flops | None = None  # of the step under way
        self._ended = self._missed = 0  # of the calls, by the last step that ended
        self._full = False
        self._within = contextlib.ExitStack()

    def begin(self) -> None:
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError(MODE)
        self._ended, self._missed = len(self._watch.seen), self._watch.missed
        if not self._full:
            self._compile_nothing()
            self._counter = self._within.enter_context(Flops())
            self._watch.forget()
            self._within.enter_context(self._watch)

    def end(self) -> None:
        counter, self._counter = self._counter, None
        self._leave()
        if counter is None:
            return
        if self._watch.full and self.steps:  # a part of a step is none
            self._full = True
            self._drop()
            return
        super().end()
        self._flops.append(counter.count)
        self._full = self._watch.full

    def _compile_nothing(self) -> None:
        """What is compiled runs as the operators that it was made of: a mode sees no Triton kernel,
        and to compile under one marks code as never to be compiled."""
        dynamo = sys.modules.get("torch._dynamo.eval_frame")
        if dynamo is not None and dynamo._stance.stance == "default":
            self._within.enter_context(torch.compiler.set_stance("force_eager"))

    def _leave(self) -> None:
        """Take our modes away from under what the program entered since, and has not left."""
        theirs = []
        while self._watch.active and _get_current_dispatch_mode() is not self._watch:
            theirs.append(_pop_mode())
        self._within.close()
        for mode in reversed(theirs):
            _push_mode(mode)

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
        self._leave()


def _tf32() -> bool:
    """Whether fp32 matmuls run in tf32: what the program left in torch's settings."""
    precision = str(torch.get_float32_matmul_precision())
    return torch.cuda.is_initialized() and precision != "highest"


class Counting(_Timed):
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
        super().begin()

    def finish(self) -> Passed:
        self.synchronize()
        try:
            if self.apart():
                raise RuntimeError(BETWEEN)
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


def capturing() -> bool:
    """Whether a CUDA graph is being captured: whoever waits for the device then breaks it."""
    return on_gpu() and bool(torch.cuda.is_current_stream_capturing())


def on_gpu() -> bool:
    """Whether the program has taken one."""
    return bool(torch.cuda.is_initialized())


def open_pass(name: PassName, region: str, trace: Path, longest_s: float) -> Pass:
    """The pass *name* of *region*: a trace goes to the file *trace*, counters count for at most
    *longest_s*."""
    if name in ("trace", "light"):
        return (Trace if name == "trace" else Light)(region, trace)
    if name == "counters":
        return Counting(region, longest_s)
    return Accounting(region) if name == "accounting" else Plain(region)
