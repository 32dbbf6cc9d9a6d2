"""Measure an all-reduce against a reduce-scatter followed by an all-gather.

A ring all-reduce is the two after each other: the same bytes over the link, so that large arrays
take the same time. Two calls have the base latency twice, which small arrays show.
"""

from __future__ import annotations

from gpuperf.lab_experiments._rings import BASE_S, all_reduce_s

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about

WITHIN = 0.25  # relative difference: NCCL may choose another protocol for either
KIB, MIB = 2**10, 2**20


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the ratio: 1, and one base latency more than an all-reduce for two calls."""
    whole_s = all_reduce_s(at, numbers)
    if at.implementation != "rs_ag":
        return about(1.0, "ratio", "the same all-reduce", WITHIN)
    because = f"one base latency more than {whole_s * 1e6:.3g} µs"
    return about((whole_s + BASE_S) / whole_s, "ratio", because, WITHIN)


HALVES = Experiment(
    name="halves",
    question="Is an all-reduce a reduce-scatter and an all-gather?",
    workload="all_reduce",
    axes={"bytes": (KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB), "dtype": ("bf16",)},
    x="bytes",
    y="time_ratio",
    steps=lambda at: 1,
    baseline=lambda at: {"implementation": "nccl"},
    expect=expect,
    implementations=("nccl", "rs_ag"),
    controls=(
        Control(
            "in a graph",
            {"bytes": 64 * MIB},
            "the same all-reduce in a CUDA graph, whose launch a large array hides",
            implementations=("nccl", "nccl_graph"),
        ),
    ),
    law=Law("proportional", band=0.15),
    needs=("cuda", "gang"),
)
