"""Measure whether an all-reduce takes α + S / β, by NCCL's own figures of latency and bandwidth.

S / (α + S / β) rises with S until the link is full: small arrays wait for α, large ones for β. NCCL
changes its protocol on the way, from LL with half of the bandwidth to Simple with twice the latency
of a step, so that points in between lie off the line. The figures are those of the table that NCCL
logs on this machine; without one, those of its source.
"""

from __future__ import annotations

from gpuperf.lab_experiments._rings import all_reduce_s, link, tuned

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about

BETWEEN = 0.6  # relative difference where NCCL changes its protocol
KIB, MIB = 2**10, 2**20


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the rate S / (α + S / β)."""
    seconds = all_reduce_s(at, numbers)
    _, protocol = tuned(numbers, at.bytes)
    source = f"{link(numbers) / 1e9:.3g} GB/s of the link" if not protocol else f"RING {protocol}"
    which = "own table" if protocol else "model"
    because = f"{seconds * 1e6:.3g} µs by NCCL's {which}, {source}"
    return about(at.bytes / seconds, "byte/s", because, BETWEEN)


ALPHA_BETA = Experiment(
    name="alpha_beta",
    question="Does an all-reduce take α + S/β, as NCCL's own table says?",
    workload="all_reduce",
    axes={
        "bytes": (KIB, 16 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB),
        "dtype": ("bf16",),
    },
    x="bytes",
    y="bytes_per_s",
    steps=lambda at: int(at.bytes),
    expect=expect,
    implementations=("nccl",),
    controls=(
        Control(
            "another operation",
            {"bytes": (KIB, 64 * MIB), "operation": "max"},
            "the link binds, and not the reduction",
        ),
    ),
    law=Law("amortisation", band=0.6, names=("latency of an all-reduce", "seconds of a byte")),
    needs=("cuda", "gang"),
    notes=("NCCL 2.29 takes 14.3 µs for 1 MiB and 1.70 ms for 512 MiB between two H200",),
)
