"""What are a device's ceilings, and how sure is each of them?

`Peaks` holds the figures of one device, from a TOML file (`gpuperf.configs/devices`, or the user's
own) or from a measurement (`gpuperf calibrate`). What is unknown is absent, never a neighbour's
value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

from gpuperf.model.contract import Regime
from gpuperf.model.cost import FlopKind, Flops

# Data sheets round: the L40S has 362.05 TFLOP/s beside 733 at twice the rate.
TOLERANCE = 0.015

Sureness = Literal["verified", "derived", "uncertain", "measured"]
Pipe = Literal["tensor", "vector", "special"]


# The share that is read of the bytes of each measured bandwidth. Writing alone is left out: what it
# leaves in L2 flatters it.
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
    """One number of a device in SI units, with where it is from and how sure it is.

    A measured rate is the median's; a tenth of the samples were under `p10`, and over `p90`.
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
            raise ValueError(f"{self.value} {self.unit} is no figure of any device")


@dataclass(frozen=True)
class Ceiling:
    """A compute roof: the most FLOP/s that one pipe does in one dtype, dense.

    `clock_hz` is the clock that the figure is stated at, `flop_per_clock_per_sm` the rate behind
    it, so that SMs × clock × rate can be held against it; `waiver` says in words why it differs.
    `regime` is how a measured one was loaded. One of special functions may be that of a `function`
    alone (empty: of any), and `accurate` where it is that of a library's, right to the last bits,
    and not of the hardware's own approximation.
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
            raise ValueError(f"a peak of {self.rate.value} {self.rate.unit}")

    @property
    def label(self) -> str:
        """`tensor bf16`; with the accumulate type where it is not the usual one."""
        if self.function:
            return f"{self.pipe} {self.dtype} {self.function}" + (
                " (accurate)" if self.accurate else ""
            )
        usual = {"fp64": "fp64", "int8": "int32", "int4": "int32"}.get(self.dtype, "fp32")
        return f"{self.pipe} {self.dtype}" + (
            f" ({self.accumulate} accumulate)" if self.accumulate not in ("", usual) else ""
        )


@dataclass(frozen=True)
class Peaks:
    """The ceilings of one device as torch shows it (one die of a package that holds two).

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
            raise ValueError(f"{self.id!r} has no SMs, or no bandwidth")

    @property
    def bandwidth(self) -> Figure | None:
        """DRAM bandwidth in byte/s, if known."""
        return self.figures.get("memory_bandwidth")

    def bandwidth_at(self, read: float) -> float | None:
        """The best DRAM bandwidth in byte/s where a share *read* of the bytes is read.

        DRAM turns around between reads and writes, so reading alone is fastest. Shares between
        those that were measured are interpolated; under half is as a copy.
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
        """The roof over *flops*: the fastest pipe that does this dtype with this accumulate type.

        A matmul may run on the tensor or the vector pipe, elementwise work on the vector pipe. The
        pipe of special functions is in no data sheet: NVIDIA's programming guide has its rate.
        """
        key = (flops.kind, flops.dtype, flops.accumulate, flops.function)
        if key not in self._roofs:
            self._roofs[key] = self._ceiling(flops)
        return self._roofs[key]

    @cached_property
    def _roofs(self) -> dict[tuple[str, ...], Ceiling | None]:
        """What `ceiling` found: a run asks the same for each of its records."""
        return {}

    def _ceiling(self, flops: Flops) -> Ceiling | None:
        pipes = PIPES[flops.kind]
        if flops.kind != "matmul" and flops.dtype in ("bf16", "fp16"):
            # Data sheets name no vector rate for them. Converting to fp32 is always possible, so
            # fp32's rate is a roof that every chip has; packed arithmetic may be twice as fast,
            # hence no rate per clock, which the physics guard would hold it to.
            wide = self.ceiling(replace(flops, dtype="fp32", accumulate=""))
            return replace(wide, flop_per_clock_per_sm=None) if wide else None
        fitting = [
            c
            for c in self.compute
            if c.pipe in pipes
            and c.dtype == flops.dtype
            and (flops.accumulate in ("", c.accumulate) or _sums_in_itself(c, flops))
            and c.regime == "burst"
            and not c.accurate
        ]
        if flops.kind == "special":
            own = [c for c in fitting if not c.function or c.function == flops.function]
            fitting = own or fitting
        best = max(fitting, key=lambda c: c.rate.value, default=None)
        if best is None and (flops.kind, flops.dtype) == ("special", "fp32"):
            return self._special_by_arithmetic()
        return best

    def accurate(self, flops: Flops) -> Ceiling | None:
        """The rate of the library's special function, right to the last bits; `None` where it was
        not measured. It is no roof: an approximation may be faster."""
        if flops.kind != "special":
            return None
        if flops.dtype in ("bf16", "fp16"):
            return self.accurate(replace(flops, dtype="fp32"))
        found = [
            c
            for c in self.compute
            if c.accurate and c.function == flops.function and c.dtype == flops.dtype
        ]
        return max(found, key=lambda c: c.rate.value, default=None)

    def _special_by_arithmetic(self) -> Ceiling | None:
        """SMs × results a clock × the boost clock, of an NVIDIA GPU in fp32.

        It has no rate per clock: a polynomial on the vector pipe may do more, so physics does not
        hold a record to it.
        """
        clock, each = self.figures.get("boost_clock"), SPECIAL_PER_CLOCK.get(self.capability)
        if self.vendor != "nvidia" or clock is None or each is None:
            return None
        rate = Figure(
            self.sm_count * each * clock.value,
            "FLOP/s",
            "derived",
            "CUDA C++ Programming Guide, throughput of native arithmetic instructions",
            f"{each} results a clock and SM at the boost clock",
        )
        return Ceiling("special", "fp32", "", rate, clock.value)


def _sums_in_itself(ceiling: Ceiling, flops: Flops) -> bool:
    """A vector pipe's fused multiply-adds are what its matmuls are made of."""
    return ceiling.pipe == "vector" and not ceiling.accumulate and flops.accumulate == flops.dtype


def matches(peaks: Peaks, name: str, sm_count: int) -> bool:
    """Whether a device of this name and SM count is the one of *peaks*.

    The whole name counts, and so do the SMs: a MIG slice or a laptop part is not the card.
    """
    return sm_count == peaks.sm_count and name.strip() in {n.strip() for n in peaks.names}


class CrossCheck(NamedTuple):
    """A ceiling, what SMs × clock × rate makes of it, and (ceiling − computed) / computed."""

    ceiling: Ceiling
    computed: float
    difference: float


def cross_check(peaks: Peaks) -> list[CrossCheck]:
    """Hold every ceiling whose clock and rate are known against SMs × clock × rate."""
    checks = []
    for ceiling in peaks.compute:
        if ceiling.clock_hz is not None and ceiling.flop_per_clock_per_sm is not None:
            computed = peaks.sm_count * ceiling.clock_hz * ceiling.flop_per_clock_per_sm
            checks.append(CrossCheck(ceiling, computed, ceiling.rate.value / computed - 1))
    return checks


def lint(peaks: Peaks) -> list[str]:
    """What is doubtful about *peaks*: one sentence each, with what to do about it."""
    return [*_lint_names(peaks), *_lint_missing(peaks), *_lint_arithmetic(peaks)]


def _lint_names(peaks: Peaks) -> list[str]:
    complaints = []
    if not peaks.names:
        complaints.append("no device name is given; list what the driver prints in `names`")
    for name in peaks.names:
        if set(name) & set("*?[]^$|\\"):
            complaints.append(
                f"the name {name!r} looks like a pattern; names are compared whole, so write out "
                "each one"
            )
        if name.strip() != name or not name:
            complaints.append(f"the name {name!r} has blanks around it; take them away")
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
        f"{what} has no source; say in `source` which document or measurement it is from"
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
        "it looks like the figure with 2:4 sparsity, so write the dense one"
        if sparse
        else "correct it, or say in `waiver` why it differs"
    )
    return (
        f"the peak of {check.ceiling.label} is {abs(check.difference) * 100:.1f} % {side} "
        f"SMs × clock × rate ({check.computed / 1e12:.6g}e12 {check.ceiling.rate.unit}); {advice}"
    )
