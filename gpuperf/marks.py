"""Mark the steps and the regions of a program for `gpuperf profile`.

Without a profiler a mark costs one comparison. Nothing here needs torch.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol


class Listener(Protocol):
    """A receiver of the marks of a program."""

    def step(self) -> None:
        """Note that one step ends and the next one begins."""

    def enter(self, name: str) -> None:
        """Note that the region *name* begins."""

    def leave(self, name: str) -> None:
        """Note that the region *name* ends."""


# The functions that compute the cost of a call, by the name of the operator (`mylib::rope`).
COSTS: dict[str, Callable[[Any], Any]] = {}

_listener: Listener | None = None
_process = 0


def _never() -> bool:
    return False


_compiling: Callable[[], bool] = _never


def listen(listener: Listener | None, compiling: Callable[[], bool] = _never) -> None:
    """Send the marks of this process, but not of its forks, to *listener*. Marks made while code is
    *compiling* are ignored, as a graph cannot hold them."""
    global _listener, _process, _compiling
    _listener, _process, _compiling = listener, os.getpid(), compiling


def register_cost(name: str, cost: Callable[[Any], Any]) -> None:
    """Register the cost of a call of the custom operator *name* (`mylib::rope`).

    *cost* takes the call, whose `tensors` have `shape`, `dtype`, `size` and `bytes` (and `outputs`
    the same), and returns a `gpuperf.Cost`. Raises: ValueError for a name without a namespace.
    """
    if not all(name.partition("::")):
        raise ValueError(f"{name!r} is not the name of an operator (like mylib::rope)")
    COSTS[name] = cost


def step() -> None:
    """Mark the end of a step: call this once at the end of each iteration of the loop."""
    if _listener is None or _compiling():
        return
    if _process == os.getpid():
        _listener.step()


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """Mark the code inside as the region *name*: `with gpuperf.region("forward"):`."""
    listener = _listener
    if listener is None or _compiling() or _process != os.getpid():
        yield
        return
    listener.enter(name)
    try:
        yield
    finally:
        listener.leave(name)
