"""Predict how much faster than CUDA cores tensor cores multiply, from their FLOPs in a clock cycle.

The baseline is the fp32 product of torch, which uses no tensor cores unless tf32 is allowed, and
whose instructions other than multiply-adds keep CUDA cores from their peak. Cycles are compared, as
a power cap slows the clock under tensor cores alone. In fp64 tensor cores are at most twice as fast
as the vector pipe, whose rate is half of that of fp32.
"""

from __future__ import annotations

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about

CORES_SHARE = 0.8  # of their peak that cuBLAS reaches in fp32: 53.2 of 66.9 TFLOP/s on an H200
WITHIN, EXACT = 0.2, 0.02
PUBLISHED_FP64 = 2.0  # tensor over vector rate of fp64: NVIDIA's white papers, A100 and H100


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the speed-up over CUDA cores in fp32: the ratio of the FLOPs in a cycle."""
    vector = CORES_SHARE * numbers["vector_fp32_per_clock"]
    if at.dtype == "fp32":
        return about(1, "ratio", "CUDA cores", EXACT)
    rate = numbers[f"tensor_{at.dtype}_per_clock"]
    because = f"{rate:g} over {vector:.4g} FLOP in a cycle of an SM"
    return about(rate / vector, "ratio", because, WITHIN)


def of_fp64(at: Point, numbers: Numbers) -> Expected:
    """Predict that fp64 gains at most a factor of two over its own vector pipe."""
    if at.dtype == "fp32":
        return about(1, "ratio", "CUDA cores", EXACT)
    ratio = numbers["vector_fp64_per_clock"] / numbers["vector_fp32_per_clock"]
    most = PUBLISHED_FP64 * ratio / CORES_SHARE
    because = f"at most {PUBLISHED_FP64:g} times the vector pipe of fp64"
    return Expected(most, 0.5 * most, 1.3 * most, "ratio", "bound", because)


TENSOR_CORE = Experiment(
    name="tensor_core",
    question="How much faster are tensor cores than CUDA cores, by dtype?",
    workload="matmul",
    axes={
        "dtype": ("fp32", "tf32", "bf16", "fp16"),
        "m": (4096, 8192, 16384),
        "n": (8192,),
        "k": (8192,),
    },
    implementations=("torch",),
    x="m",
    series="dtype",
    y="cycle_speedup",
    baseline=lambda at: {"dtype": "fp32"},
    expect=expect,
    controls=(
        Control(
            "fp64",
            {"dtype": ("fp32", "fp64"), "m": 4096, "n": 4096, "k": 4096},
            "the tensor cores of fp64 are at most twice as fast as its vector pipe",
            of_fp64,
        ),
    ),
    law=Law("proportional", band=WITHIN),
    claims=("000-06", "001-24", "004-03"),
)
