"""Define the peaks and ceilings of a device, each with its source and its certainty.

`Peaks` holds the numbers of one device, from a TOML file (`gpuperf.configs/devices`, or the user's)
or from a measurement (`gpuperf calibrate`). An unknown number is absent; the value of a similar
device never replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

from gpuperf.model.contract import Regime
from gpuperf.model.cost import FlopKind, Flops

# Difference of a peak from SMs × clock × rate that rounding explains: the data sheet of the L40S
# has 362.05 TFLOP/s, and 733 at twice the rate.
TOLERANCE = 0.015

Sureness = Literal["verified", "derived", "uncertain", "measured"]
Pipe = Literal["tensor", "vector", "special"]

# The share of reads in the bytes of each measured bandwidth. Writing alone is left out, since the
# L2 still holds a part of its bytes when the time ends.
READ_SHARES: Mapping[str, float] = {
    "copy_bandwidth": 1 / 2,
    "triad_bandwidth": 2 / 3,
    "read_bandwidth": 1.0,
}

# Results a clock and SM of the special-function unit in fp32 (reciprocal, its square root, base-2
# exponential and logarithm, sine, cosine), by compute capability: CUDA C++ Programming Guide, table
# "Throughput of Native Arithmetic Instructions".
SPECIAL_PER_CLOCK: Mapping[str, int] = dict.fromkeys(
    ("7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"), 16
)

PIPES: Mapping[FlopKind, tuple[Pipe, ...]] = {
    "matmul": ("tensor", "vector"),
    "elementwise": ("vector",),
    "special": ("special",),
}


@dataclass(frozen=True)
class Figure:
    """One number of a device in SI units, with its source and its certainty.

    A measured rate is that of the median; 10 % of the samples were below `p10`, 10 % above `p90`.
    """

    value: float
    unit: str
    status: Sureness
    source: str
    condition: str = ""
    p10: float | None = None
    p90: float | None = None

    def __post_init__(self) -> None:
        if not (self.value == 0 or 1e-6 <= self.value < 1e30):
            raise ValueError(f"no device has a figure of {self.value} {self.unit}")


@dataclass(frozen=True)
class Ceiling:
    """A compute roof: the highest dense FLOP/s of one pipe in one dtype.

    `clock_hz` is the clock of the figure and `flop_per_clock_per_sm` the rate behind it, so that
    SMs × clock × rate can check it; `waiver` says in words why it differs. `regime` is the load
    under which it was measured. A roof of special functions may hold for one `function` only
    (empty: for any). `accurate` marks the rate of a library function that is right to the last
    bits, as opposed to the hardware's approximation.
    """

    pipe: Pipe
    dtype: str
    accumulate: str
    rate: Figure
    clock_hz: float | None = None
    flop_per_clock_per_sm: float | None = None
    waiver: str = ""
    regime: Regime = "burst"
    function: str = ""
    accurate: bool = False

    def __post_init__(self) -> None:
        if self.rate.value <= 0:
            raise ValueError(f"a peak cannot be {self.rate.value} {self.rate.unit}")

    @property
    def label(self) -> str:
        """Name such as `tensor bf16`, with the accumulate type unless it is the usual one."""
        name = f"{self.pipe} {self.dtype}"
        if self.function:
            return f"{name} {self.function}{' (accurate)' if self.accurate else ''}"
        usual = {"fp64": "fp64", "int8": "int32", "int4": "int32"}.get(self.dtype, "fp32")
        return name if self.accumulate in ("", usual) else f"{name} ({self.accumulate} accumulate)"


@dataclass(frozen=True)
class Peaks:
    """The peaks of one device as torch shows it, which is one die of a package with two.

    `figures` may hold `memory_bandwidth` (byte/s), `memory_capacity`, `l2`, `llc`, `shared_memory`
    (bytes), `boost_clock`, `tensor_clock` (Hz), `tdp` (W), `link_bandwidth` (byte/s, both ways).
    """

    id: str
    name: str
    vendor: str
    arch: str
    capability: str
    names: tuple[str, ...]
    sm_count: int
    compute: tuple[Ceiling, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    sm_count_status: Sureness = "verified"
    sm_count_source: str = ""
    pcie: str = ""
    pcie_status: Sureness = "uncertain"
    pcie_source: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.sm_count < 10**7 or (self.bandwidth and self.bandwidth.value <= 0):
            raise ValueError(f"the peaks {self.id!r} have no SMs, or no bandwidth")

    @property
    def bandwidth(self) -> Figure | None:
        """DRAM bandwidth in byte/s, if it is known."""
        return self.figures.get("memory_bandwidth")

    def bandwidth_at(self, read: float) -> float | None:
        """Return the DRAM bandwidth in byte/s if a share *read* of the bytes is read.

        DRAM loses time between reads and writes, so reading alone is fastest. The bandwidth is
        interpolated between measured shares; below 1/2 it is that of a copy.
        """
        known = [
            (share, self.figures[name].value)
            for name, share in READ_SHARES.items()
            if name in self.figures and self.figures[name].value > 0
        ]
        if not known:
            return self.bandwidth.value if self.bandwidth else None
        for (low, slow), (high, fast) in pairwise(known):
            if low <= read <= high:
                return slow + (fast - slow) * (read - low) / (high - low)
        return known[0][1] if read < known[0][0] else known[-1][1]

    def ceiling(self, flops: Flops) -> Ceiling | None:
        """Return the roof of *flops*: the fastest pipe for this dtype and accumulate type.

        A matmul may run on the tensor or the vector pipe, elementwise work on the vector pipe. No
        data sheet has the rate of special functions; NVIDIA's programming guide does.
        """
        key = (flops.kind, flops.dtype, flops.accumulate, flops.function)
        if key not in self._roofs:
            self._roofs[key] = self._ceiling(flops)
        return self._roofs[key]

    @cached_property
    def _roofs(self) -> dict[tuple[str, ...], Ceiling | None]:
        """Results of `ceiling`, as each record of a run needs the same ones."""
        return {}

    def _ceiling(self, flops: Flops) -> Ceiling | None:
        pipes = PIPES[flops.kind]
        if flops.kind != "matmul" and flops.dtype in ("bf16", "fp16"):
            # Data sheets have no vector rate of bf16 and fp16. Any chip can convert to fp32, whose
            # rate is then a roof. Packed arithmetic may be twice as fast, so the roof has no rate
            # per clock, and physics does not judge by it.
            wide = self.ceiling(replace(flops, dtype="fp32", accumulate=""))
            return replace(wide, flop_per_clock_per_sm=None) if wide else None
        fitting = [
            c
            for c in self.compute
            if c.pipe in pipes
            and c.dtype == flops.dtype
            and (flops.accumulate in ("", c.accumulate) or _accumulates_in_dtype(c, flops))
            and c.regime == "burst"
            and not c.accurate
        ]
        if flops.kind == "special":
            same = [c for c in fitting if not c.function or c.function == flops.function]
            fitting = same or fitting
        best = max(fitting, key=lambda c: c.rate.value, default=None)
        if best is None and (flops.kind, flops.dtype) == ("special", "fp32"):
            return self._special_by_arithmetic()
        return best

    def accurate(self, flops: Flops) -> Ceiling | None:
        """Return the rate of the library's accurate special function, if it was measured. It is not
        a roof, as an approximation may be faster."""
        if flops.kind != "special":
            return None
        if flops.dtype in ("bf16", "fp16"):
            return self.accurate(replace(flops, dtype="fp32"))
        wanted = (True, flops.function, flops.dtype)
        fitting = [c for c in self.compute if (c.accurate, c.function, c.dtype) == wanted]
        return max(fitting, key=lambda c: c.rate.value, default=None)

    def _special_by_arithmetic(self) -> Ceiling | None:
        """Compute the roof of an NVIDIA GPU in fp32: SMs × results per clock × boost clock.

        It has no rate per clock, so physics does not judge by it: a polynomial on the vector pipe
        may be faster.
        """
        clock, each = self.figures.get("boost_clock"), SPECIAL_PER_CLOCK.get(self.capability)
        if self.vendor != "nvidia" or clock is None or each is None:
            return None
        rate = Figure(
            self.sm_count * each * clock.value,
            "FLOP/s",
            "derived",
            "CUDA C++ Programming Guide, throughput of native arithmetic instructions",
            f"{each} results per clock and SM at the boost clock",
        )
        return Ceiling("special", "fp32", "", rate, clock.value)


def _accumulates_in_dtype(ceiling: Ceiling, flops: Flops) -> bool:
    """Whether the fused multiply-adds of a vector pipe make up the matmul *flops*."""
    return ceiling.pipe == "vector" and not ceiling.accumulate and flops.accumulate == flops.dtype


def matches(peaks: Peaks, name: str, sm_count: int) -> bool:
    """Whether *peaks* are those of the device with this name and SM count.

    The whole name and the SM count must agree: a MIG slice or a laptop GPU differs from the card.
    """
    return sm_count == peaks.sm_count and name.strip() in {n.strip() for n in peaks.names}


class CrossCheck(NamedTuple):
    """A ceiling, SMs × clock × rate, and the difference (ceiling − computed) / computed."""

    ceiling: Ceiling
    computed: float
    difference: float


def cross_check(peaks: Peaks) -> list[CrossCheck]:
    """Compare every ceiling with a known clock and rate with SMs × clock × rate."""
    checks = []
    for ceiling in peaks.compute:
        if ceiling.clock_hz is not None and ceiling.flop_per_clock_per_sm is not None:
            computed = peaks.sm_count * ceiling.clock_hz * ceiling.flop_per_clock_per_sm
            checks.append(CrossCheck(ceiling, computed, ceiling.rate.value / computed - 1))
    return checks


def lint(peaks: Peaks) -> list[str]:
    """Return the doubts about *peaks*: one sentence each, with what to do about it."""
    return [*_lint_names(peaks), *_lint_missing(peaks), *_lint_arithmetic(peaks)]


def _lint_names(peaks: Peaks) -> list[str]:
    complaints = []
    if not peaks.names:
        complaints.append("no device name is given; list what the driver prints in `names`")
    for name in peaks.names:
        if set(name) & set("*?[]^$|\\"):
            complaints.append(
                f"the name {name!r} looks like a pattern; names are compared whole, so write each "
                "one in full"
            )
        if name.strip() != name or not name:
            complaints.append(f"the name {name!r} has blanks around it; remove them")
    return complaints


def _lint_missing(peaks: Peaks) -> list[str]:
    complaints = []
    if peaks.bandwidth is None:
        complaints.append("the memory bandwidth is missing; add [figures.memory_bandwidth]")
    if not peaks.compute:
        complaints.append("no compute peak is given; add a [[compute]] for each pipe and dtype")
    sources = {"sm_count": peaks.sm_count_source}
    sources |= {f"figures.{key}": figure.source for key, figure in peaks.figures.items()}
    sources |= {f"the peak of {c.label}": c.rate.source for c in peaks.compute}
    if peaks.pcie:
        sources["pcie"] = peaks.pcie_source
    complaints += [
        f"{what} has no source; name the document or measurement in `source`"
        for what, source in sources.items()
        if not source.strip()
    ]
    return complaints


def _lint_arithmetic(peaks: Peaks) -> list[str]:
    checked = {id(c.ceiling): c for c in cross_check(peaks)}
    complaints = []
    for ceiling in peaks.compute:
        check = checked.get(id(ceiling))
        if ceiling.waiver.strip():
            continue
        if check is None:
            complaints.append(
                f"the peak of {ceiling.label} cannot be checked; give `clock` and "
                "`flop_per_clock_per_sm`, or say in `waiver` why there are none"
            )
        elif abs(check.difference) > TOLERANCE:
            complaints.append(_disagreement(check))
    return complaints


def _disagreement(check: CrossCheck) -> str:
    side = "above" if check.difference > 0 else "below"
    sparse = abs(check.difference - 1) <= 2 * TOLERANCE
    advice = (
        "it looks like the peak with 2:4 sparsity, so write the dense one"
        if sparse
        else "correct it, or say in `waiver` why it differs"
    )
    return (
        f"the peak of {check.ceiling.label} is {abs(check.difference) * 100:.1f} % {side} "
        f"SMs × clock × rate ({check.computed / 1e12:.6g}e12 {check.ceiling.rate.unit}); {advice}"
    )
