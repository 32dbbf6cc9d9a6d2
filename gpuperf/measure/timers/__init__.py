"""How long does a call take? One timer a file, chosen by name, never swapped silently."""

from __future__ import annotations

from functools import cache

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.model.contract import TimerName

from .timer import Timer
from .window import Window

__all__ = ["make_timer", "open_window"]


@cache
def open_window(device: torch.device) -> Window:
    """The one window of *device* in this process. Raises: CannotMeasure."""
    if device.type != "cuda" or torch.version.hip:
        raise CannotMeasure("the timer 'blocked' needs an NVIDIA GPU", "choose another --timer")
    return Window(device)


@cache
def make_timer(name: TimerName, device: torch.device) -> Timer:
    """The timer called *name* on *device*, made once. Raises: CannotMeasure where there is none.

    `auto`, `blocked` and `activity` take their samples in the same windows.
    """
    if name == "wall":
        from .wall import WallTimer

        return WallTimer(device)
    if device.type != "cuda":
        raise CannotMeasure(f"the timer {name!r} needs a GPU", "choose --timer wall")
    if name == "events":
        from .events import EventsTimer

        return EventsTimer(device)
    if torch.version.hip:
        raise CannotMeasure(f"the timer {name!r} needs CUDA", "choose --timer events")
    if name == "graph":
        from .graph import GraphTimer

        return GraphTimer(open_window(device))
    if name != "blocked":
        return make_timer("blocked", device)
    from .blocked import BlockedTimer

    return BlockedTimer(open_window(device))
