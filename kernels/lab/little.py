"""Measure the bandwidth of DRAM against the bytes in flight, which Little's law relates.

With x bytes in flight and a latency L, x / L bytes arrive in a second, until DRAM delivers no more.
`_loads.py` has the kernels, whose threads have a known number of loads in flight.
"""

from __future__ import annotations

from gpuperf.lab_experiments._loads import SLOTS, build, reference, supports
from gpuperf.lab_experiments._pointers import level

from gpuperf import (
    Axis,
    Bytes,
    Control,
    Cost,
    Expected,
    Experiment,
    Implementation,
    Law,
    Numbers,
    Point,
    Workload,
    at_most,
)
from gpuperf.theory.little import attained, queued

# One load of 4 bytes in each of 64 threads reached 0.897 of the bound: a turn has some 80 cycles of
# instructions beside 690 of latency. A thread with many loads waits for one that may arrive last.
SHARE = 0.8


def moved(at: Point) -> int:
    """Return the bytes that a call loads."""
    return int(SLOTS * at.threads * at.unroll * at.size * at.rounds)


def in_flight(at: Point, numbers: Numbers) -> float:
    """Return the bytes in flight on the device."""
    loads = 1 if at.implementation == "dependent" else at.unroll
    return numbers["sms"] * at.threads * loads * at.size


def latency(numbers: Numbers) -> float:
    """Return the latency of DRAM in seconds; a stream misses the TLB as rarely as `lines` does."""
    return numbers.get("latency_stream", level(numbers, "dram")) / numbers["clock"]


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict min(x / L, B) as a bound, reached as far as loads do not wait for each other.

    At worst each waits for all others, and the latency is that of an idle device plus x / B.
    """
    x, seconds, bandwidth = in_flight(at, numbers), latency(numbers), numbers["read_bandwidth"]
    source = numbers.source("latency_stream")
    because = f"{x / 1e6:.3g} MB in flight, {seconds * 1e9:.0f} ns ({source}), {bandwidth:.3g} B/s"
    most = attained(x, seconds, bandwidth)
    return at_most(most, "byte/s", because, SHARE * queued(x, seconds, bandwidth) / most)


LOADS = Workload(
    name="loads",
    summary="a stream with a known number of bytes in flight",
    formula="128·threads·unroll·size·rounds bytes",
    axes=(
        Axis("threads", 2048, "threads of an SM", main=True, minimum=32),
        Axis("unroll", 1, "loads of a thread in flight"),
        Axis("size", 4, "bytes of a load"),
        Axis("rounds", 512, "times that all loads of a thread arrive, with 128 SMs"),
        Axis("n", 2**29, "elements of x; over 8 sizes of the L2, so that it has none of them"),
        Axis("dtype", "fp32", "dtype of x and y", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=reference,
    cost=lambda point: Cost(bytes=(Bytes(min(moved(point), 4 * point.n), 4 * SLOTS),)),
    implementations=(
        Implementation("independent", build("independent"), "all loads in flight", supports),
        Implementation("dependent", build("dependent"), "one load in flight", supports),
    ),
    terms=lambda point: point.rounds * point.unroll * point.size // 4,
)

LITTLE = Experiment(
    name="little",
    question="How many bytes must be in flight to saturate DRAM?",
    workload=LOADS,
    axes={"threads": (64, 128, 256, 512, 1024, 2048), "unroll": (1, 4), "size": (4, 8, 16)},
    x="bytes in flight",
    along=in_flight,
    y="bytes_per_s",
    steps=moved,
    expect=expect,
    implementations=("independent",),
    controls=(
        Control("by threads", {"threads": 1024}, "4 KiB in flight on an SM, as of the next two"),
        Control("by unrolling", {"threads": 256, "unroll": 4}, "the same bytes in fewer threads"),
        Control("by width", {"threads": 256, "size": 16}, "the same bytes in wider loads"),
        Control(
            "dependent loads",
            {"threads": 512, "unroll": (4, 8)},
            "four loads that wait for each other are one load in flight",
            implementations=("dependent",),
        ),
    ),
    law=Law("saturation", band=0.2),
    after=("latency", "lines"),
    notes=("2,048 threads of an SM with one 4-byte load each do not saturate an H200",),
)
