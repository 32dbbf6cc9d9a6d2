"""Time how long a program waits for its data loaders.

The times of `DataLoader.__iter__`, which starts the workers, and of each `next` of its iterator are
added up on the thread that loads first, with the line that loads.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any


class Loading:
    """A clock that adds up the seconds in which the program waits for its data loaders."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._batches: int | None = None  # of the loader that was used last
        self._given = 0
        self._place: tuple[str, int] | None = None
        self._thread = 0
        self._inside = False
        self._installed = False

    @property
    def where(self) -> str:
        """Return the last wait's `file:line`; empty before the first wait."""
        from gpuperf.profile.inside.dispatch import short_path

        return "" if self._place is None else f"{short_path(self._place[0])}:{self._place[1]}"

    @property
    def given(self) -> float | None:
        """Return the share of its batches that the loader used last has returned so far.

        Returns None without a loader, and for a dataset of unknown length.
        """
        return self._given / self._batches if self._batches else None

    def install(self) -> None:
        """Time the loaders of torch from now on."""
        if self._installed:
            return
        from torch.utils.data import dataloader

        self._installed = True
        for kind, name in (
            (dataloader.DataLoader, "__iter__"),
            (dataloader._BaseDataLoaderIter, "__next__"),
        ):
            setattr(kind, name, self._timed(getattr(kind, name), name))

    def _timed(self, wait: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(loader: Any) -> Any:
            self._thread = self._thread or threading.get_ident()
            if self._inside or threading.get_ident() != self._thread:
                return wait(loader)
            self._inside, began = True, time.perf_counter()
            if name == "__iter__":
                self._given, self._batches = 0, _length(loader)
            else:
                self._given += 1
            try:
                return wait(loader)
            finally:
                self._inside = False
                self.waited_s += time.perf_counter() - began
                caller = sys._getframe(1)
                self._place = caller.f_code.co_filename, caller.f_lineno

        return timed


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:  # the dataset has no length, or its own `__len__` fails
        return None


loading = Loading()
