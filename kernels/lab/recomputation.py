"""Predict the time of three sigmoids and their gradient by what is kept for the backward pass.

Memory binds, so that time follows the passes over a tensor. The baseline keeps two results, as a
backward pass does that computes the last sigmoid from the second: 8 passes.
"""

from __future__ import annotations

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.theory.checkpointing import apart_passes, checkpointed_passes, inner_passes
from gpuperf.theory.recomputation import recomputed_passes, stored_passes

SIGMOIDS, WITHIN = 3, 0.08  # reads are 4 % quicker than copies, and writes 10 %, on an H200
PASSES = {
    "eager": apart_passes(SIGMOIDS),
    "checkpoint": checkpointed_passes(SIGMOIDS),
    "stored": stored_passes(SIGMOIDS),
    "stored_inner": inner_passes(SIGMOIDS),
    "recomputed": recomputed_passes(),
}


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the time over that of `stored_inner`: the ratio of their passes."""
    passes, usual = PASSES[at.implementation], PASSES["stored_inner"]
    return about(passes / usual, "ratio", f"{passes} passes over {usual}", WITHIN)


RECOMPUTATION = Experiment(
    name="recomputation",
    question="Is it quicker to compute activations again than to load them?",
    workload="sigmoid_stack",
    # fp32: in 16 bits the exponentials would take as long as half the bytes.
    axes={"n": (2**26, 2**27, 2**28), "mode": ("fwd+bwd",), "dtype": ("fp32",)},
    implementations=tuple(PASSES),
    x="n",
    y="time_ratio",
    baseline=lambda at: {"implementation": "stored_inner"},
    expect=expect,
    controls=(
        Control(
            "forward alone",
            {"mode": "fwd"},
            "both keep results, which differ in the backward pass alone",
            lambda at, numbers: about(1, "ratio", "4 passes each", 0.03),
            ("stored", "stored_inner"),
        ),
    ),
    law=Law("proportional", band=WITHIN),
    claims=("000-12", "001-28", "002-18"),
    notes=("An eager checkpoint moves more bytes than it saves: it fuses nothing.",),
)
