"""Predict how fast a GPU works through a table that is on the host: as fast as the link feeds it.

The kernel alone reads tens of times faster than the link brings the columns. So a host that is done
in bytes / link is not outrun by any GPU (`break_even`), and a speed-up of the kernel alone is none.
Times of the host, and of building the frame, come from `gpuperf compare groupby --timer wall`.
"""

from __future__ import annotations

from gpuperf import Control, Expected, Experiment, Numbers, Point, at_most
from gpuperf.theory.links import pcie_bandwidth
from gpuperf.theory.offload import break_even, offload_seconds

ROW, SUM = 12, 4  # bytes of a row, and of a result
SHARE = 0.6  # of the bound: the kernel runs between the two copies


def copied(at: Point) -> float:
    """Return the bytes that cross the link in the scope `copied`."""
    return float(ROW * at.n + SUM * at.groups)


def link_of(numbers: Numbers) -> float:
    """Return the bandwidth of the link; that of 16 lanes of PCI Express 5.0 if it is unknown."""
    return numbers.get("h2d_bandwidth", pcie_bandwidth("5.0"))


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes a second of a call with its copies."""
    link, moved = link_of(numbers), copied(at)
    kernel_s = moved / numbers["read_bandwidth"]
    most = moved / offload_seconds(kernel_s, moved, link)
    least_s, source = break_even(moved, link), numbers.source("h2d_bandwidth")
    because = f"a link of {link / 1e9:.3g} GB/s ({source}): {least_s:.3g} s at least"
    return at_most(most, "byte/s", because, SHARE, 0.05)


def alone(at: Point, numbers: Numbers) -> Expected:
    """Predict that the kernel alone is far faster than the link, and no faster than memory."""
    most, least = numbers["read_bandwidth"], 2 * link_of(numbers)
    return Expected(most, least, 1.05 * most, "byte/s", "bound", "columns in DRAM: no link")


CPU_OR_GPU = Experiment(
    name="cpu_or_gpu",
    question="How fast does a GPU work through a table that is on the host?",
    workload="groupby",
    axes={"n": (2**22, 2**23, 2**24, 2**25, 2**26), "groups": (2**18,), "scope": ("copied",)},
    implementations=("torch",),
    x="n",
    y="bytes_per_s",
    steps=copied,
    expect=expect,
    controls=(
        Control("the kernel alone", {"scope": "kernel", "n": 2**26}, "nothing is copied", alone),
    ),
    claims=("002-15", "004-29"),
)
