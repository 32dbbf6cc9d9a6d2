"""Open one of the profiling passes, which measure successive steps of a program.

All passes but the plain one wait for the device before their first step; during its steps only the
pass that reads counters of each kernel does.
"""

from __future__ import annotations

from pathlib import Path

from gpuperf.model.program import PassName
from gpuperf.profile.inside.passes.accounting import Accounting
from gpuperf.profile.inside.passes.base import Pass, abandon, capturing, in_compiled, on_gpu
from gpuperf.profile.inside.passes.counting import Counting, Kernels
from gpuperf.profile.inside.passes.plain import Plain
from gpuperf.profile.inside.passes.tracing import Light, Trace

__all__ = ["Pass", "Trace", "abandon", "capturing", "in_compiled", "on_gpu", "open_pass"]


def open_pass(
    name: PassName, region: str, trace: Path, longest_s: float, launched: int = 0
) -> Pass:
    """Return a new pass *name* of *region*, not started.

    A trace is written to the file *trace*. Counters of DRAM bytes have room for *longest_s*
    seconds, those of kernels for twice *launched* kernels a step (0: unknown).
    """
    if name in ("trace", "light"):
        return (Trace if name == "trace" else Light)(region, trace)
    if name == "counters":
        return Counting(region, longest_s)
    if name == "kernels":
        return Kernels(region, launched)
    return Accounting(region) if name == "accounting" else Plain(region)
