"""Predict what activation checkpointing of transformer blocks saves in memory and costs in time.

A block keeps 16 tensors of tokens·width elements, and the softmax of eager attention; its input
alone if it runs again. Running again costs the forward products without the last: 2/3 of a third.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.model.workload import Value
from gpuperf.theory.checkpointing import block_elements, block_ratio
from gpuperf.units import itemsize

WITHIN = 0.08  # sums of norms, and attention's output where it is laid out anew for a projection
SHALLOW, SHORT = 2, 1024  # blocks and tokens of the step to which that of the control is compared
AXES: Mapping[str, tuple[Value, ...]] = {
    "depth": (2, 4, 8),
    "attention": ("sdpa",),
    "dtype": ("bf16",),
}


def of_bytes(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes kept; the input of the first block is an input of the step."""
    width, tokens = at.heads * at.head_dim, at.batch * at.seq
    eager = at.attention == "eager"
    each = block_elements(at.seq, width, at.heads, at.implementation, eager)
    kept = tokens * (at.depth * each - width) * itemsize(at.dtype)
    if eager and at.implementation == "none":
        kept += at.depth * at.seq**2  # the mask, a byte for each pair
    because = f"{each / width:.3g} of tokens·width elements a block"
    return about(kept, "byte", because, WITHIN)


def of_time(at: Point, numbers: Numbers) -> Expected:
    """Predict the cycles over those without a checkpoint: the ratio of the FLOPs."""
    ratio = block_ratio(at.seq, at.heads * at.head_dim, at.implementation)
    return about(ratio, "ratio", "FLOPs over those of a step that keeps all", 0.08)


def of_depth(at: Point, numbers: Numbers) -> Expected:
    """Predict the cycles over those of a step of the fewest blocks."""
    return about(at.depth / SHALLOW, "ratio", "the blocks of a step over those of another", 0.08)


def compared(at: Point) -> Mapping[str, Value]:
    """Return the axes of the step that *at* is compared with: for the control one of few blocks."""
    return {"implementation": "none", **({"depth": SHALLOW} if at.seq == SHORT else {})}


CHECKPOINT_MEMORY = Experiment(
    name="checkpoint_memory",
    question="How much memory does activation checkpointing save?",
    workload="checkpoint",
    # Small, as a count does not depend on the size: a CPU does it too.
    axes={**AXES, "heads": (4,), "batch": (1,), "seq": (256,)},
    x="depth",
    y="reading:kept_bytes",
    unit="byte",
    expect=of_bytes,
    controls=(
        Control("a quarter", {"seq": 64}, "fused attention is linear in the tokens"),
        Control("eager", {"seq": 64, "attention": "eager"}, "the softmax is kept too"),
    ),
    law=Law("proportional", band=0.08),
    needs=(),
    claims=("001-28",),
)

CHECKPOINT_TIME = replace(
    CHECKPOINT_MEMORY,
    name="checkpoint_time",
    question="How much time does activation checkpointing cost?",
    axes={**AXES, "seq": (2048,)},
    y="cycle_ratio",  # a power cap changes the clock from case to case
    unit="",
    expect=of_time,
    baseline=compared,
    controls=(
        Control(
            "blocks",
            {"seq": SHORT, "depth": (SHALLOW, 2 * SHALLOW)},
            "twice as many blocks take twice the cycles",
            of_depth,
            ("none",),
        ),
    ),
    needs=("cuda",),
    notes=(
        "4/3 is often said: torch leaves out the last product of a block, whose result no "
        "gradient needs.",
    ),
)
