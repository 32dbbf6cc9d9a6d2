"""Trace the operators of the host and the kernels of the device over steps of a program."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from gpuperf.model.program import MARK, PART, PassName, PassResult
from gpuperf.profile.inside.passes.base import Base

OTHER = "the program uses torch.profiler itself, of which only one runs at a time"
KERNEL = b'"cat": "kernel"'  # the category of a kernel's event in the file
# A trace must end on its own thread, or the process dies; another thread may end before.
ELSEWHERE = "its steps are on another thread than the main one, and are not traced"


class Trace(Base):
    """A trace of kernels and operators by torch's profiler, in a file for the supervisor."""

    name: PassName = "trace"

    def __init__(self, region: str, path: Path, cuda: bool = False) -> None:
        """Prepare a trace, with *cuda* also of a GPU that the program is about to take."""
        super().__init__(region)
        self._path, self._on_gpu = path, cuda or self.cuda
        self._profile: Any = None
        self._step: Any = None
        self._parts: list[Any] = []
        self._began = 0.0
        self._lost = False
        self.kernels = 0  # kernels of a step, once the trace has finished
        self._dropped: list[int] = []  # numbers of the steps that do not count
        self._restore: Callable[[], None] = lambda: None

    def start(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(ELSEWHERE)
        if torch.autograd._profiler_enabled():
            raise RuntimeError(OTHER)
        # Events as Python objects would take 0.6 ms each: only the file is wanted, without torch's
        # warning of that. The filter stays: catch_warnings would affect other threads.
        warnings.filterwarnings("ignore", "Warning: Profiler clears events")
        self._profile = profile(activities=self._activities(), record_shapes=True, acc_events=False)
        super().start()
        self._profile.start()
        self._yield_to_others()
        self._began = time.perf_counter()

    def _activities(self) -> list[ProfilerActivity]:
        on_gpu = [ProfilerActivity.CUDA] if self._on_gpu else []
        return [ProfilerActivity.CPU, *on_gpu]

    def _yield_to_others(self) -> None:
        """Abandon this trace if the program starts a profiler: only one runs at a time."""
        from torch.autograd import profiler

        theirs = [
            (profiler.profile, "_prepare_trace"),
            (profiler.emit_nvtx, "__enter__"),
            (profiler.emit_itt, "__enter__"),
        ]
        originals = [(kind, name, getattr(kind, name)) for kind, name in theirs]

        def yields(prepare: Callable[..., Any]) -> Callable[..., Any]:
            def first(other: Any, *arguments: Any) -> Any:
                self._lost = True
                with contextlib.suppress(Exception):
                    self.abandon()
                return prepare(other, *arguments)

            return first

        def restore() -> None:
            for kind, name, prepare in originals:
                setattr(kind, name, prepare)

        for kind, name, prepare in originals:
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

    def drop(self) -> None:
        """Record the number of the current step, which stays in the file but does not count."""
        self._dropped.append(self.steps + len(self._dropped))
        self._close_step()

    def enter(self, name: str) -> None:
        """Mark the beginning of a region inside the step."""
        part = record_function(f"{MARK}{self.region}{PART}{name}")
        part.__enter__()
        self._parts.append(part)

    def leave(self) -> None:
        """Mark the end of the innermost region, unless it began before the pass."""
        if self._parts:
            self._parts.pop().__exit__(None, None, None)

    def _close_step(self) -> None:
        while self._parts:
            self.leave()
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def finish(self) -> PassResult:
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
        self.kernels = self._path.read_bytes().count(KERNEL) // max(1, self.steps)
        return PassResult(
            self.region,
            self.name,
            self.steps,
            wall_s=wall_s,
            trace=str(self._path),
            dropped=tuple(self._dropped),
        )

    def abandon(self) -> None:
        running, self._profile = self._profile, None
        self._restore()
        self._close_step()
        if running is not None:
            with contextlib.suppress(Exception):
                running.stop()


class Light(Trace):
    """A trace of kernels and CUDA runtime calls only: recording operators would slow the host down,
    which then waits less for the device."""

    name: PassName = "light"

    def _activities(self) -> list[ProfilerActivity]:
        return [ProfilerActivity.CUDA]

    def begin(self) -> None:
        pass

    def drop(self) -> None:
        Base.drop(self)

    def enter(self, name: str) -> None:
        pass
