"""Predict that decode attention costs what its keys and values cost, for any heads of queries.

Each key moves once for all heads that share it, and products are far from binding, so that 8 to 64
heads of queries over 8 heads of keys take the same time. The points are a grid of heads of queries
and of heads that share: all of one number of heads of keys lie on one point of the law.
"""

from __future__ import annotations

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.theory.claims.published import SMALL_KERNEL_US
from gpuperf.theory.decoding import attention_seconds, decode_attention
from gpuperf.units import itemsize

WITHIN = 0.12
STARTS_S = 2 * SMALL_KERNEL_US["streamed"] * 1e-6  # of the kernel that splits and the one that adds
USUAL = {"heads": 64, "gqa": 8, "kv": 4096}  # the case that a ratio refers to


def seconds(at: Point, numbers: Numbers) -> float:
    """Return the time of the bytes, unless the FLOPs take longer, and of starting two kernels."""
    kv_heads, context = at.heads // at.gqa, at.batch * (at.kv - at.queries)
    shape = (at.batch, context, at.heads, kv_heads, at.head_dim, at.queries)
    work = decode_attention(*shape, itemsize(at.dtype))
    return STARTS_S + attention_seconds(work, numbers["tensor_bf16"], numbers["read_bandwidth"])


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the time over that of 64 heads of queries that share 8 heads of keys."""
    ratio = seconds(at, numbers) / seconds(Point({**at, **USUAL}), numbers)
    because = f"{at.heads // at.gqa} heads of keys over 8; {at.heads} of queries count nothing"
    return about(ratio, "ratio", because, WITHIN)


GQA = Experiment(
    name="gqa",
    question="Do heads of queries that share keys cost anything in decode attention?",
    workload="decode",
    axes={
        "heads": (8, 16, 32, 64),
        "gqa": (1, 2, 4, 8),
        "batch": (32,),
        "kv": (4096,),
        "dtype": ("bf16",),
    },
    implementations=("triton_split",),
    x="heads of keys",
    along=lambda at, numbers: at.heads // at.gqa,
    series="heads",
    y="time_ratio",
    baseline=lambda at: USUAL,
    expect=expect,
    controls=(
        Control(
            "twice the tokens",
            {"heads": 64, "gqa": 8, "kv": 8192},
            "twice the keys for the same heads: the time does follow the bytes",
        ),
    ),
    law=Law("proportional", band=WITHIN),
    claims=("004-15",),
)
