"""What of a program that never marks a step? A stretch of it is traced, in case it does not."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuperf.model.program import WHOLE, PassResult
from gpuperf.profile.inside.passes import Trace, abandon, capturing

WATCHED_S, HOST_WATCHED_S = 5.0, 2.0  # of it; a host alone may call 200,000 operators a second
AGAIN_S = 1.0  # after the program last compiled


class Unmarked:
    """Traces a stretch of the program on the thread that asks for it.

    *file* names a file for a trace; *cut* and *watch* are called by the main thread when it is time
    to end the trace, or to begin one. `found` is what a trace that ended found.
    """

    def __init__(
        self, file: Callable[[], Path], cut: Callable[[], None], watch: Callable[[], None]
    ) -> None:
        self.found: PassResult | None = None
        self._file = file
        self._whole: Trace | None = None
        self._timer: threading.Timer | None = None
        self._watcher = threading.get_ident()
        calls = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        self._cut, self._again = calls(lambda _: _done(cut)), calls(lambda _: _done(watch))

    @property
    def here(self) -> bool:
        """Whether this is the thread that traces."""
        return threading.get_ident() == self._watcher

    def watch(self, cuda: bool) -> bool:
        """Begin a trace, if there was none: with *cuda* also of the GPU that the program is about
        to take. Whether a GPU is traced now. Raises: RuntimeError where torch cannot trace."""
        main = threading.current_thread() is threading.main_thread()  # which pending calls are of
        if self._whole is not None or self.found is not None or not main or capturing():
            return False
        whole = Trace(WHOLE, self._file(), cuda)
        try:
            whole.start()
            whole.begin()
        except BaseException:
            abandon(whole)
            raise
        self._whole = whole
        self._watcher = threading.get_ident()
        self._later(WATCHED_S if cuda else HOST_WATCHED_S, self._cut)
        return cuda

    def watch_in(self, seconds: float) -> None:
        """Begin a trace then."""
        self._watcher = threading.get_ident()
        self._later(seconds, self._again)

    def give_way(self) -> None:
        """What is traced is of no use."""
        if self._timer is not None:
            self._timer.cancel()
        self._abandon()

    def cut(self, ended: bool = False) -> None:
        """End the trace, which is of the whole program if that *ended*, else of a part: each
        operator in it costs 20 kB and 50 µs when it ends."""
        if self._whole is not None and capturing():
            self._later(AGAIN_S, self._cut)
            return
        whole, self._whole = self._whole, None
        if whole is not None:
            try:
                whole.end()
                self.found = replace(whole.finish(), cut=not ended)
            except Exception as error:
                abandon(whole)
                self.found = PassResult(WHOLE, "trace", 0, reason=sentence(error))

    def drop(self) -> None:
        """Something is marked: forget it all."""
        self.found = None
        self._abandon()

    def _abandon(self) -> None:
        whole, self._whole = self._whole, None
        if whole is not None:
            abandon(whole)

    def _later(self, seconds: float, call: Any) -> None:
        """Have *call* made by the main thread: a trace must end on the thread that it began on."""
        add = ctypes.pythonapi.Py_AddPendingCall
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, lambda: add(call, None))
        self._timer.daemon = True
        self._timer.start()


def _done(call: Callable[[], None]) -> int:
    """What a pending call says when all is well."""
    call()
    return 0


def sentence(error: BaseException) -> str:
    """What *error* says, in a line that can be told."""
    try:
        text = (str(error).strip().splitlines() or [""])[0][:300]
    except Exception:  # of a stranger's class
        text = ""
    return text.encode(errors="replace").decode() or type(error).__name__
