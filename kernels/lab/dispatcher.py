"""Predict the time of small operators in a row: max(host, device), with a knee between the two.

While the device computes, the host launches the next operators. Below the knee, which is at host
cost × bandwidth in bytes, the device waits for the host. The workload is in `_negation.py`.
"""

from __future__ import annotations

from gpuperf.lab_experiments._negation import NEGATION, SIZE

from gpuperf import Control, Expected, Experiment, Numbers, Point
from gpuperf.theory import dispatch

FACTOR = 2.5  # between the hosts of the published figures and another
NEAR, FAR = 0.85, 1.25  # of the device's time: its bandwidth may be that of the data sheet
HOST_S = {
    "plain": dispatch.EAGER_OPERATOR_S,
    "out": dispatch.EAGER_OPERATOR_S,
    "inference": dispatch.EAGER_OPERATOR_S,
    "compiled": dispatch.COMPILED_CALL_S,
    "graph": dispatch.GRAPH_KERNEL_S,
}


def device_s(at: Point, numbers: Numbers) -> float:
    """Return the seconds of a kernel: its start and end, and its bytes."""
    return dispatch.GRAPH_KERNEL_S + float(2 * SIZE * at.n / numbers["copy_bandwidth"])


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the seconds of a call among many."""
    host_s, own_s = HOST_S[at.implementation], device_s(at, numbers)
    bandwidth = numbers["copy_bandwidth"]
    value = dispatch.call_s(host_s, 2 * SIZE * at.n, bandwidth, dispatch.GRAPH_KERNEL_S)
    knee = dispatch.knee_bytes(host_s, bandwidth, dispatch.GRAPH_KERNEL_S)
    because = f"host {host_s * 1e6:.1f} µs, device {own_s * 1e6:.3g} µs, knee {knee / 1e6:.3g} MB"
    low, high = max(host_s / FACTOR, NEAR * own_s), max(host_s * FACTOR, FAR * own_s)
    return Expected(value, low, high, "s", "model", because)


def of_device(at: Point, numbers: Numbers) -> Expected:
    """Predict the seconds of a call that takes the device longer than any host."""
    own_s = device_s(at, numbers)
    because = "the start of a kernel, and its bytes / bandwidth"
    return Expected(own_s, NEAR * own_s, FAR * own_s, "s", "model", because)


DISPATCHER = Experiment(
    name="dispatcher",
    question="What does an operator cost the host, and up to which size does it bind?",
    workload=NEGATION,
    axes={"n": (1, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26)},
    x="n",
    y="reading:call_s",
    unit="s",
    expect=expect,
    controls=(
        Control(
            "large",
            {"n": 2**27},
            "the device is slower than any host, so that all series coincide",
            of_device,
        ),
    ),
    claims=("001-27", "003-19", "003-20", "004-05"),
)
