"""Hold back Ctrl-C, and what else raises KeyboardInterrupt, while a message is received."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The handlers of `SIGNALS`, which can wait; a second signal does not."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: tuple[int, FrameType | None] | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}

    @contextlib.contextmanager
    def installed(self) -> Iterator[Interrupts]:
        """Take the place of the handlers; outside the main thread, which has all signals, do
        nothing."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._handle)
        try:
            yield self
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Handle a signal that comes in this block at the end of the block."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._waiting is not None:
            (number, frame), self._waiting = self._waiting, None
            self._handlers[number](number, frame)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._held and self._waiting is None:
            self._waiting = number, frame
        else:
            self._handlers[number](number, frame)
