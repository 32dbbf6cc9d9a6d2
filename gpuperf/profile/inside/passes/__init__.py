"""Open the pass of a name over some steps of a program.

A pass ends with an idle device, and all but the plain one begin with it; in between it disturbs the
program as little as it can.
"""

from __future__ import annotations

from pathlib import Path

from gpuperf.model.program import PassName
from gpuperf.profile.inside.passes.accounting import Accounting
from gpuperf.profile.inside.passes.base import Pass, abandon, capturing, on_gpu
from gpuperf.profile.inside.passes.counting import Counting, Kernels
from gpuperf.profile.inside.passes.plain import Plain
from gpuperf.profile.inside.passes.tracing import Light, Trace

__all__ = ["Pass", "Trace", "abandon", "capturing", "on_gpu", "open_pass"]


def open_pass(
    name: PassName, region: str, trace: Path, longest_s: float, launched: int = 0
) -> Pass:
    """Open the pass *name* of *region*.

    A trace goes to the file *trace*; counters have room for *longest_s*, or for about *launched*
    kernels a step.
    """
    if name in ("trace", "light"):
        return (Trace if name == "trace" else Light)(region, trace)
    if name == "counters":
        return Counting(region, longest_s)
    if name == "kernels":
        return Kernels(region, launched)
    return Accounting(region) if name == "accounting" else Plain(region)
