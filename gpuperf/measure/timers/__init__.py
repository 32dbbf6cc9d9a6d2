"""How long does a call take? One timer a file, chosen by name, never swapped silently."""

from __future__ import annotations

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.model.contract import TimerName

from .timer import Timer

__all__ = ["make_timer"]


def make_timer(name: TimerName, device: torch.device) -> Timer:
    """The timer called *name* on *device*. Raises: CannotMeasure when it cannot be had there."""
    if name == "wall":
        from .wall import WallTimer

        return WallTimer(device)
    if device.type != "cuda":
        raise CannotMeasure(f"the timer {name!r} needs a GPU", "choose --timer wall")
    if name == "events":
        from .events import EventsTimer

        return EventsTimer(device)
    if torch.version.hip:
        raise CannotMeasure("the timer 'blocked' needs CUDA", "choose --timer events")
    from .blocked import BlockedTimer

    return BlockedTimer(device)
