"""Predict the time of operators in a row, which the host launches while the device computes."""

from __future__ import annotations

from gpuperf.theory.claims.checks_003 import EAGER_KERNELS, EAGER_S
from gpuperf.theory.claims.published import SMALL_KERNEL_US

EAGER_OPERATOR_S = EAGER_S / EAGER_KERNELS  # the notes' function: 30 kernels in 157 µs
# Of a small compiled function: `graph_amortisation` on an H200's host with torch 2.11. It was 27 µs
# in pytorch/pytorch, issue 114860.
COMPILED_CALL_S = 54e-6
GRAPH_KERNEL_S = SMALL_KERNEL_US["graph"] * 1e-6


def call_s(host_s: float, moved: float, bandwidth: float, start_s: float = 0.0) -> float:
    """Return the seconds of an operator among many: those of the host, or those of its kernel,
    which starts and moves *moved* bytes at *bandwidth*, whichever are more."""
    return max(host_s, start_s + moved / bandwidth)


def knee_bytes(host_s: float, bandwidth: float, start_s: float = 0.0) -> float:
    """Return the bytes of an operator below which the host binds: those that move in the time that
    the host takes longer than the start of a kernel."""
    return max(0.0, host_s - start_s) * bandwidth
