"""Where does a step of a program begin and end? What its author may say, and what hears it.

`gpuperf profile` listens; without it a mark costs a comparison. Nothing here needs torch.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol


class Listener(Protocol):
    """Hears the marks of a program."""

    def step(self) -> None:
        """One step ended, and the next one begins."""

    def enter(self, name: str) -> None:
        """A region begins."""

    def leave(self, name: str) -> None:
        """It ends."""


# By the names of operators (`mylib::rope`): what a call of each costs.
COSTS: dict[str, Callable[[Any], Any]] = {}

_listener: Listener | None = None
_process = 0


def _never() -> bool:
    return False


_compiling: Callable[[], bool] = _never


def listen(listener: Listener | None, compiling: Callable[[], bool] = _never) -> None:
    """Marks of this process, and of none that it forks, go to *listener*; those that are made while
    code is *compiling* are nothing: a graph has no place for them."""
    global _listener, _process, _compiling
    _listener, _process, _compiling = listener, os.getpid(), compiling


def register_cost(name: str, cost: Callable[[Any], Any]) -> None:
    """Tell what a call of the custom operator *name* (`mylib::rope`) costs.

    *cost* takes the call, whose `tensors` have `shape`, `dtype`, `size` and `bytes` (and `outputs`
    the same), and returns a `gpuperf.Cost`. Raises: ValueError for a name without a namespace.
    """
    if not all(name.partition("::")):
        raise ValueError(f"{name!r} is no operator's name, like mylib::rope")
    COSTS[name] = cost


def step() -> None:
    """Say that one step of a loop ended: call it once in each round, at its end."""
    if _listener is None or _compiling():
        return
    if _process == os.getpid():
        _listener.step()


@contextlib.contextmanager
def region(name: str) -> Iterator[None]:
    """Say that what runs inside is the region *name*: `with gpuperf.region("forward"):`."""
    heard = _listener
    if heard is None or _compiling() or _process != os.getpid():
        yield
        return
    heard.enter(name)
    try:
        yield
    finally:
        heard.leave(name)
