"""Predict what quantized weights gain over bf16 by the tokens of a pass.

Each format has the kernel of `linear` that serves it best: CUDA C for up to 16 tokens of int8 and
int4 weights, else Triton.

While the weights' bytes bind, the gain is the ratio of the bits. int8 and int4 weights are
multiplied in bf16, so that they leave memory at fewer tokens, and gain nothing from the tokens on
at which bf16 leaves it. fp8 is multiplied at its own rate, and gains at any number of tokens.
"""

from __future__ import annotations

from dataclasses import replace

from gpuperf.kernels._linear_cuda import linear_best
from gpuperf.kernels.linear import LINEAR

from gpuperf import Control, Expected, Experiment, Implementation, Numbers, Point, about, at_most
from gpuperf.theory.decoding import packed_bits, quantized_gain

WITHIN, CORNER = 0.2, 0.35  # of a gain; within a factor of 2 of a corner, since corners are round
LONG_PROMPT = {"m": 4096, "n": 2048, "k": 2048}  # larger products slow the clock down
BITS = {"unquantized": 16.0, "fp8": 8.0, "int8": 8.0}


BEST = replace(
    LINEAR,
    name="quantized_linear",
    summary="y = x·Wᵀ by gpuperf's best kernel for each format and number of tokens",
    implementations=(Implementation("gpuperf", linear_best, "CUDA C for few tokens, else Triton"),),
)


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the time of bf16 weights over that of the point's."""
    usual = numbers["tensor_bf16"]
    rate = numbers.get("tensor_fp8", usual) if at.weights == "fp8" else usual
    bits = BITS.get(at.weights) or packed_bits(4, at.group)
    bandwidth = numbers["copy_bandwidth"]
    gain = quantized_gain(at.m, (at.k, at.n), bits, (rate, usual), bandwidth)
    corners = rate / bandwidth * bits / 16, usual / bandwidth
    within = CORNER if any(c / 2 < at.m < c * 2 for c in corners) and gain != 1 else WITHIN
    return about(gain, "ratio", f"{bits:.3g} bits, products at {rate:.3g} FLOP/s", within)


def none(at: Point, numbers: Numbers) -> Expected:
    """Predict that nothing is gained; restoring the weights may cost time."""
    return at_most(1, "ratio", "products at the rate of bf16 bind", share=0.5, above=0.05)


QUANT_CROSSOVER = Experiment(
    name="quant_crossover",
    question="Up to how many tokens do quantized weights gain?",
    workload=BEST,
    axes={
        "m": (1, 8, 16, 32, 64, 128, 256, 512, 1024),
        "weights": ("unquantized", "fp8", "int8", "int4"),
        "group": (128,),
        # So large that the fixed time of a kernel, some microseconds, does not count.
        "n": (16384,),
        "k": (16384,),
        "dtype": ("bf16",),
    },
    x="m",
    series="weights",
    y="speedup",
    baseline=lambda at: {"weights": "unquantized"},
    expect=expect,
    controls=(
        Control(
            "a long prompt",
            {"weights": ("unquantized", "int8", "int4"), **LONG_PROMPT},
            "weights alone are quantized, and compute binds",
            none,
        ),
    ),
    claims=("004-07", "004-08", "004-09"),
    notes=("Published on an H200 at 8192²: fp8 gains 1.57 for 1 token and 1.6 for 512.",),
)
