"""Time calls in a row by the host's clock, which includes launches."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def seconds(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Return the seconds of *calls* calls in a row, until the device has ended the last."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    wait()
    return time.perf_counter() - start
