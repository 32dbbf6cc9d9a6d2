"""Open timers by name; each module of this folder, except `timer` and `window`, is one timer."""

from __future__ import annotations

from functools import cache
from importlib import import_module

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.model.contract import TimerName
from gpuperf.model.timers import TIMERS

from .timer import OpenTimer

__all__ = ["make_timer"]


@cache
def make_timer(name: TimerName, device: torch.device) -> OpenTimer:
    """Open the timer *name* on *device*, once. Raises: CannotMeasure where it is unavailable."""
    timer = TIMERS[name]
    kind = "rocm" if device.type == "cuda" and torch.version.hip else device.type
    if kind not in timer.kinds and kind == "rocm":
        raise CannotMeasure(f"the timer {name!r} needs CUDA", "choose --timer events")
    if kind not in timer.kinds:
        raise CannotMeasure(f"the timer {name!r} needs a GPU", "choose --timer wall")
    if timer.windows_of:
        return make_timer(timer.windows_of, device)
    opened: OpenTimer = import_module(timer.module).open_timer(device)
    return opened
