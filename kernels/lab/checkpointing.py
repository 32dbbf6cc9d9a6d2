"""Predict the time of three matmuls and their gradients whose results are computed again.

Compute binds, so that time follows the products: 9 with all results kept, 12 with a second forward
pass, which is 4/3. torch's checkpoint stops early by default, before the last product, whose result
no gradient needs. The workload is in `_matmul_stack.py`.
"""

from __future__ import annotations

from gpuperf.lab_experiments._matmul_stack import LAYERS, MATMUL_STACK

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.theory.checkpointing import product_ratio

AGAIN = {"stored": 0, "checkpoint": LAYERS, "checkpoint_early": LAYERS - 1}


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the time over that with all results kept: the ratio of the products."""
    again = AGAIN[at.implementation] if at.mode != "fwd" else 0
    ratio = product_ratio(LAYERS, again)
    return about(ratio, "ratio", f"9 products and {again} again, over 9", 0.05)


CHECKPOINTING = Experiment(
    name="checkpointing",
    question="What does computing results again cost where compute binds?",
    workload=MATMUL_STACK,
    axes={"d": (4096, 6144, 8192), "mode": ("fwd+bwd",)},
    x="d",
    y="cycle_ratio",
    baseline=lambda at: {"implementation": "stored"},
    expect=expect,
    controls=(Control("forward alone", {"mode": "fwd"}, "no result is computed again"),),
    law=Law("proportional", band=0.05),
    claims=("000-12", "001-28"),
)
