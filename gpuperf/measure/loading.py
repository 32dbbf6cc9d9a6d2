"""How long does a program wait for its data loaders?

The time of `DataLoader.__iter__`, which starts the workers, and of each `next` of its iterator is
added up on the thread that asked for it first, with the line that asks.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Loading", "loading"]


class Loading:
    """The seconds that the program waited for data by now, and the line of its last wait."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._place: tuple[str, int] | None = None
        self._thread = 0
        self._inside = False
        self._installed = False

    @property
    def where(self) -> str:
        """`file:line`; empty before the first wait."""
        from gpuperf.measure.watching import short_path

        return "" if self._place is None else f"{short_path(self._place[0])}:{self._place[1]}"

    def install(self) -> None:
        """Watch the loaders of torch, from now on."""
        if self._installed:
            return
        from torch.utils.data import dataloader

        self._installed = True
        for kind, name in ((dataloader.DataLoader, "__iter__"),
                           (dataloader._BaseDataLoaderIter, "__next__")):  # fmt: skip
            setattr(kind, name, self._timed(getattr(kind, name)))

    def _timed(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def timed(loader: Any) -> Any:
            self._thread = self._thread or threading.get_ident()
            if self._inside or threading.get_ident() != self._thread:
                return wait(loader)
            self._inside, began = True, time.perf_counter()
            try:
                return wait(loader)
            finally:
                self._inside = False
                self.waited_s += time.perf_counter() - began
                caller = sys._getframe(1)
                self._place = caller.f_code.co_filename, caller.f_lineno

        return timed


loading = Loading()
