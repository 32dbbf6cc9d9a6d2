"""Predict the gain of a CUDA graph, whose recording is paid once and whose replay is cheap."""

from __future__ import annotations

import math


def speedup(calls: float, each_s: float, once_s: float, replay_s: float) -> float:
    """Return S(n) = n·t_e / (C + n·t_g): the time of *calls* eager calls of *each_s* over that of
    recording, *once_s*, and as many replays of *replay_s*."""
    if math.isinf(calls):
        return each_s / replay_s
    return calls * each_s / (once_s + calls * replay_s)


def break_even(each_s: float, once_s: float, replay_s: float) -> float:
    """Return the calls from which on the graph wins, C / (t_e − t_g); infinite if it never does."""
    return once_s / (each_s - replay_s) if each_s > replay_s else math.inf
