"""Cheats that no check in the same process can detect: see the README of this folder."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import torch
from cheats import Call, Inputs, empty

from gpuperf.model.workload import Point

__all__ = ["UNCAUGHT"]


def patches_the_judge(inputs: Inputs, point: Point, options: Any) -> Call:
    """Replaces the comparison, and returns zeros."""
    from gpuperf.measure import verify
    from gpuperf.model.record import Check

    verify.compare = lambda *a, **k: Check(error=0.0, tolerance=1.0, rows=1)
    c = empty(inputs, point)
    return lambda: c.zero_()


def patches_the_clock(inputs: Inputs, point: Point, options: Any) -> Call:
    """Sets the clock back after each product."""
    import time

    real, saved = time.perf_counter, [0.0]
    time.perf_counter = lambda: real() - saved[0]

    def call() -> torch.Tensor:
        began = real()
        c = inputs["a"] @ inputs["b"]
        saved[0] += (real() - began) * 0.99
        return c

    return call


def waits_for_the_sample(inputs: Inputs, point: Point, options: Any) -> Call:
    """Works where its result will be read, and returns at once where it will be dropped."""
    c = empty(inputs, point)

    def call() -> torch.Tensor:
        frame, names = sys._getframe(1), set()
        while frame:
            names.add(frame.f_code.co_name)
            frame = frame.f_back  # type: ignore[assignment]
        if names & {"keeping", "_checked", "_run", "after", "_timed"}:
            torch.mm(inputs["a"], inputs["b"], out=c)
        return c

    return call


def reads_the_seed(inputs: Inputs, point: Point, options: Any) -> Call:
    """Finds the verifier, and draws what it will draw."""
    from gpuperf.measure import verify

    def call() -> torch.Tensor:
        found = [o for o in gc.get_objects() if type(o) is verify.Verifier]
        for one in found:
            for step in (0, verify.AFTER, verify.PART):
                a, b = map(one._drawn(one.seed + step)[0].get, "ab")
                if a is not None and a.dtype is inputs["a"].dtype and torch.equal(a, inputs["a"]):
                    return a @ b  # or from a table made beforehand
        return inputs["a"] @ inputs["b"]

    return call


UNCAUGHT: tuple[Callable[[Inputs, Point, Any], Call], ...] = (
    patches_the_judge,
    patches_the_clock,
    waits_for_the_sample,
    reads_the_seed,
)
