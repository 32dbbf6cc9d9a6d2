"""Measure the bandwidth of L1, L2 and DRAM: reads of a footprint that every SM repeats.

Over the footprint, the bandwidth has a plateau for each level; `_reads.py` has the kernel. One
access of the L2 serves all SMs that ask for a sector at the same time, so that SMs receive more
than its slices deliver: 2.7 times as much from 1 MiB on an H200, and 1.4 times from 8 MiB, by the
counters `l1tex__m_xbar2l1tex_read_bytes` and `lts__t_sectors_srcunit_tex`.
"""

from __future__ import annotations

from gpuperf.lab_experiments._reads import REPEATED_READ

from gpuperf import Control, Expected, Experiment, Law, Numbers, Point, about
from gpuperf.theory.bandwidth import l1_bandwidth, l2_bandwidth, read_bandwidth
from gpuperf.theory.latency import mixed

KIB, MIB = 2**10, 2**20
L1_HOLDS = 128 * KIB
IN_FLIGHT = 32 * KIB  # of an SM; of a footprint that is below all of them, SMs share accesses
L2_LACKS = 3  # L2 sizes: with random replacement, a cycle of this length finds 6 % of its lines
OF_L1, OF_L2, OF_DRAM = 0.12, 0.2, 0.08
SHARED = 0.4  # more than the slices of the L2 deliver, as some accesses serve several SMs


def levels(numbers: Numbers) -> tuple[float, float, float]:
    """Return the bandwidths of L1, L2 and DRAM: measured ones, or those of the formulas."""
    sms, clock, dram = numbers["sms"], numbers["clock"], numbers["read_bandwidth"]
    sheet = numbers.source("read_bandwidth") == "data sheet"
    return (
        numbers.get("l1_bandwidth", l1_bandwidth(sms, clock)),
        numbers.get("l2_bandwidth", l2_bandwidth(sms, clock)),
        read_bandwidth(dram) if sheet else dram,
    )


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the plateau of the level that holds the footprint."""
    (l1, l2, dram), size = levels(numbers), numbers["l2"]
    if at.footprint <= L1_HOLDS:
        return about(l1, "byte/s", "each L1 holds the footprint: 128 bytes a cycle and SM", OF_L1)
    shared = numbers["sms"] * IN_FLIGHT
    if at.footprint < shared:
        because = "L1 holds some of the footprint, and accesses of the L2 serve several SMs"
        return between(at, (L1_HOLDS, shared), (l1, l2), because)
    if at.footprint <= size / 2:
        return of_l2(at, numbers)
    if at.footprint < L2_LACKS * size:
        edge = (size / 2, L2_LACKS * size)
        return between(at, edge, (l2, dram), "the L2 holds some of the footprint")
    return about(dram, "byte/s", "DRAM, as the L2 loses a line before its next use", OF_DRAM)


def between(
    at: Point, sizes: tuple[float, float], levels: tuple[float, float], because: str
) -> Expected:
    """Predict a mixture of two levels: no point of it belongs to a plateau."""
    low, high = levels[1] * (1 - OF_L2), levels[0] * (1 + OF_L2)
    return Expected(mixed(at.footprint, sizes, levels), low, high, "byte/s", "model", because)


def of_l2(at: Point, numbers: Numbers) -> Expected:
    """Predict the plateau of the L2, whether loads bypass L1 or L1 cannot hold the footprint."""
    l2, because = levels(numbers)[1], "the L2 delivers 35 bytes a cycle and SM, some to several SMs"
    return Expected(l2, (1 - OF_L2) * l2, (1 + SHARED) * l2, "byte/s", "model", because)


BANDWIDTH = Experiment(
    name="bandwidths",
    question="How many bytes a second does each level of memory deliver?",
    workload=REPEATED_READ,
    axes={"footprint": tuple(16 * KIB * 2**i for i in range(18))},
    x="footprint",
    y="bytes_per_s",
    steps=lambda at: at.total,
    cache=lambda at, numbers: "hot",  # the first lap is 1 % of the reads of what fits the L2
    expect=expect,
    implementations=("ca",),
    controls=(
        Control(
            "L1 bypassed",
            {"footprint": 8 * MIB},
            "ld.cg takes from the L2 what L1 cannot hold anyway",
            of_l2,
            ("cg",),
        ),
    ),
    law=Law("plateaus", band=0.5, names=("bandwidth_l1", "bandwidth_l2", "bandwidth_dram")),
    notes=(
        "published: L1 29.9, L2 8.4 to 9.9 and DRAM 4.5 TB/s on H200, 19.1, 5.4 and 1.8 on A100",
    ),
)
