"""Predict the time of a chain of elementwise operators on one tensor, apart and fused.

Each operator of its own reads a tensor and writes one: k operators make 2·k passes over memory. A
fused chain makes 2 passes, until its arithmetic takes longer than they do.
"""

from __future__ import annotations

PASSES = 2  # of one operator: a read and a write


def apart(operators: int) -> int:
    """Return the passes over memory of *operators* kernels."""
    return PASSES * operators


def fused_ratio(operators: int, size: int, rate: float, bandwidth: float) -> float:
    """Return the time of the fused chain over that of one operator alone.

    An element has *size* bytes; *rate* is that of the vector pipe in operations a second, and
    *bandwidth* that of a copy in byte/s.
    """
    return max(1.0, operators / rate / (PASSES * size / bandwidth))


def binding_operators(size: int, rate: float, bandwidth: float) -> float:
    """Return the operators of a fused chain at which its arithmetic takes as long as its passes."""
    return rate * PASSES * size / bandwidth
