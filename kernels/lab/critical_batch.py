"""Predict from how many tokens on a linear layer is bound by compute and not by its weights.

The weights move once for all tokens, so that the time is flat until the products take longer than
they do: at rate / bandwidth · size / 2 tokens, 206 on an H200 in bf16.
"""

from __future__ import annotations

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.theory.ridge import weights_seconds
from gpuperf.units import itemsize

WITHIN = 0.2  # activations add a sixteenth at the knee, and no kernel reaches both roofs


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the time of the weights' bytes, or of the products if they take longer."""
    size, rate, bandwidth = itemsize("bf16"), numbers["tensor_bf16"], numbers["copy_bandwidth"]
    least_s = weights_seconds(at.m, at.k, at.n, size, rate, bandwidth)
    knee = rate / bandwidth * size / 2
    return about(least_s, "s", f"flat to {knee:.0f} tokens, FLOPs / rate beyond", WITHIN)


CRITICAL_BATCH = Experiment(
    name="critical_batch",
    question="From how many tokens on does compute bind a linear layer?",
    workload="linear",
    axes={
        "m": (1, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048),
        "n": (8192,),
        "k": (8192,),
        "dtype": ("bf16",),
    },
    implementations=("torch",),
    x="m",
    y="time_per_step",
    expect=expect,
    controls=(
        Control("twice the outputs", {"m": 16, "n": 16384}, "twice the weights: twice the time"),
        # Longer ones meet the power cap, which the measured rate does not have in every case.
        Control("half the inputs", {"m": 2048, "k": 4096}, "half the products: half the time"),
    ),
    law=Law("floor", band=WITHIN),
    claims=("001-08", "001-21", "004-21"),
    notes=("Published on an H200: 34.9 µs for 1 token, 37.1 for 128, 47.7 for 256, 90.3 for 512.",),
)
