"""Predict the bandwidth of decode attention by the programs among which a sequence is split.

A token of one sequence has as many programs as heads of keys, and a program reads through the port
of one SM. So few of them leave memory idle, and splits (Flash-Decoding) help until the programs
draw all of its bandwidth.
"""

from __future__ import annotations

from gpuperf import Control, Expected, Experiment, Numbers, Point, at_most
from gpuperf.theory.decoding import decode_attention, split_bandwidth
from gpuperf.units import itemsize

# Bytes a clock from the L2 to an SM: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via
# Microbenchmarking (2018), table 3.1; the same on later ones.
PORT = 64
SHARE, FULL = 0.3, 0.7  # of the bound: a program waits for its softmax; enough of them overlap


def programs(at: Point) -> int:
    """Return the programs of the first kernel."""
    return int(at.batch * (at.heads // at.gqa) * at.splits)


def cache_bytes(at: Point) -> float:
    """Return the bytes that the attention of a token moves through its cache."""
    kv_heads, context = at.heads // at.gqa, at.batch * (at.kv - at.queries)
    shape = (at.batch, context, at.heads, kv_heads, at.head_dim, at.queries)
    return decode_attention(*shape, itemsize(at.dtype))[1]


def bound(at: Point, numbers: Numbers, share: float) -> Expected:
    """Return what the ports of as many SMs as there are programs draw, at most all of memory's."""
    busy = min(programs(at), int(numbers["sms"]))
    most = split_bandwidth(busy, PORT * numbers["clock"], numbers["read_bandwidth"])
    because = f"{programs(at)} programs, {PORT} B a clock each; {numbers['read_bandwidth']:.3g} B/s"
    return at_most(most, "byte/s", because, share, 0.05)


SPLIT_KV = Experiment(
    name="split_kv",
    question="What does splitting the keys of a sequence among programs gain?",
    workload="decode",
    axes={
        "splits": (1, 8, 32),
        "kv": (65536, 131072),
        "batch": (1,),
        "heads": (32,),
        "gqa": (4,),
        "dtype": ("bf16",),
    },
    implementations=("triton_split",),
    x="programs",
    along=lambda at, numbers: programs(at),
    series="kv",
    y="bytes_per_s",
    steps=cache_bytes,
    expect=lambda at, numbers: bound(at, numbers, SHARE),
    controls=(
        Control(
            "many sequences",
            {"batch": 64, "kv": 8192, "splits": (1, 8)},
            "more programs than SMs without splits, which gain nothing",
            lambda at, numbers: bound(at, numbers, FULL),
        ),
    ),
    notes=("Published on an H200: 3.18 TB/s for one sequence of 65,536 tokens.",),
)
