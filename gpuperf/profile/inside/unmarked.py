"""Trace a few seconds of a program, in case it never marks a step."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuperf.model.program import WHOLE, PassResult
from gpuperf.profile.inside.passes import Trace, abandon, capturing

TRACED_S, HOST_TRACED_S = 5.0, 2.0  # a host alone may call 200,000 operators a second
AGAIN_S = 1.0  # seconds after the program last compiled until it is traced again


class Unmarked:
    """A trace of a few seconds of a program that marks no step, begun and ended on one thread.

    *file* returns a path for the trace; *cut* and *watch* are called on the main thread when the
    trace has to end, or to begin. `result` is the pass once its trace has ended.
    """

    def __init__(
        self, file: Callable[[], Path], cut: Callable[[], None], watch: Callable[[], None]
    ) -> None:
        self.result: PassResult | None = None
        self._file = file
        self._trace: Trace | None = None
        self._timer: threading.Timer | None = None
        self._watcher = threading.get_ident()
        calls = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        self._cut, self._again = calls(lambda _: _done(cut)), calls(lambda _: _done(watch))

    @property
    def here(self) -> bool:
        """Return whether the calling thread is the one that traces."""
        return threading.get_ident() == self._watcher

    def watch(self, cuda: bool) -> bool:
        """Begin a trace if there was none, and return whether a GPU is traced now.

        With *cuda* it includes the GPU that the program is about to take. Raises: RuntimeError if
        torch cannot trace.
        """
        main = threading.current_thread() is threading.main_thread()  # runs pending calls
        if self._trace is not None or self.result is not None or not main or capturing():
            return False
        trace = Trace(WHOLE, self._file(), cuda)
        try:
            trace.start()
            trace.begin()
        except BaseException:
            abandon(trace)
            raise
        self._trace = trace
        self._watcher = threading.get_ident()
        self._later(TRACED_S if cuda else HOST_TRACED_S, self._cut)
        return cuda

    def watch_in(self, seconds: float) -> None:
        """Begin a trace in *seconds*."""
        self._watcher = threading.get_ident()
        self._later(seconds, self._again)

    def give_way(self) -> None:
        """Abandon the trace, and cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._abandon()

    def cut(self, ended: bool = False) -> None:
        """End the trace; it covers the whole program if that has *ended*, else a part.

        Each operator in a trace costs 20 kB, and 50 µs when the trace ends.
        """
        if self._trace is not None and capturing():
            self._later(AGAIN_S, self._cut)
            return
        trace, self._trace = self._trace, None
        if trace is not None:
            try:
                trace.end()
                self.result = replace(trace.finish(), cut=not ended)
            except Exception as error:
                abandon(trace)
                self.result = PassResult(WHOLE, "trace", 0, reason=sentence(error))

    def drop(self) -> None:
        """Forget the trace and its result, since the program marks something."""
        self.result = None
        self._abandon()

    def _abandon(self) -> None:
        trace, self._trace = self._trace, None
        if trace is not None:
            abandon(trace)

    def _later(self, seconds: float, call: Any) -> None:
        """Have the main thread run *call*: a trace must end on the thread on which it began."""
        add = ctypes.pythonapi.Py_AddPendingCall
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, lambda: add(call, None))
        self._timer.daemon = True
        self._timer.start()


def _done(call: Callable[[], None]) -> int:
    """Run *call* and return 0, which means success to Py_AddPendingCall."""
    call()
    return 0


def sentence(error: BaseException) -> str:
    """Return the first line of the message of *error*; without a message, the name of its class."""
    try:
        text = (str(error).strip().splitlines() or [""])[0][:300]
    except Exception:  # its `__str__` fails
        text = ""
    return text.encode(errors="replace").decode() or type(error).__name__
