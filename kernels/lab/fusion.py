"""Predict what fusing k elementwise operators gains: a chain of 2·k passes becomes one of 2.

The y is a ratio to one operator of torch, so that a prediction needs no bandwidth while memory
binds; the workload is in `_chain.py`.
"""

from __future__ import annotations

from gpuperf.lab_experiments._chain import CHAIN, SIZE

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.theory.fusion import apart, fused_ratio

FEW = 16  # operators that stay memory-bound on any device, CPUs included


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the time over that of one operator, from the passes over memory.

    Products bind beyond a number of operators that only figures of the device can tell.
    """
    if at.implementation in ("eager", "cuda_apart"):
        passes = apart(at.ops)
        return about(
            passes / apart(1), "ratio", f"{passes} passes over the 2 of one operator", 0.06
        )
    if at.ops <= FEW:
        return about(1, "ratio", "2 passes, as one operator has", 0.1)
    # A product takes the place of a multiply-add, which counts as two operations.
    rate, bandwidth = numbers["vector_fp32"] / 2, numbers["copy_bandwidth"]
    ratio = fused_ratio(at.ops, SIZE, rate, bandwidth)
    return about(ratio, "ratio", f"2 passes, or {at.ops} products if these take longer", 0.12)


FUSION = Experiment(
    name="fusion",
    question="What does fusing k elementwise operators gain?",
    workload=CHAIN,
    axes={"ops": (1, 2, 4, 8, 16, 32, 128, 512)},
    x="ops",
    y="time_ratio",
    baseline=lambda at: {"implementation": "eager", "ops": 1},
    expect=expect,
    controls=(
        Control(
            "one operator",
            {"ops": 1},
            "there is nothing to fuse",
            lambda at, numbers: about(1, "ratio", "2 passes in either form", 0.05),
            ("compile",),
        ),
    ),
    law=Law("proportional", band=0.08),
    needs=(),
    claims=("000-09", "004-01"),
)
