"""What are a device's ceilings, and how sure is each of them?

`Peaks` holds the figures of one device, from a TOML file (`gpuperf.configs/devices`, or the user's
own) or from a measurement (`gpuperf calibrate`). What is unknown is absent, never a neighbour's
value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuperf.model.cost import Flops

__all__ = ["Ceiling", "Figure", "Peaks", "Pipe", "Sureness"]

Sureness = Literal["verified", "derived", "uncertain", "measured"]
Pipe = Literal["tensor", "vector"]


@dataclass(frozen=True)
class Figure:
    """One number of a device in SI units, with where it is from and how sure it is."""

    value: float
    unit: str
    status: Sureness
    source: str
    condition: str = ""


@dataclass(frozen=True)
class Ceiling:
    """A compute roof: the most FLOP/s that one pipe does in one dtype, dense.

    `clock_hz` is the clock that the figure is stated at, `flop_per_clock_per_sm` the rate behind
    it, so that SMs × clock × rate can be held against it; `waiver` says in words why it differs.
    """

    pipe: Pipe
    dtype: str
    accumulate: str
    rate: Figure
    clock_hz: float | None = None
    flop_per_clock_per_sm: float | None = None
    waiver: str = ""


@dataclass(frozen=True)
class Peaks:
    """The ceilings of one device as torch shows it.

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
    notes: str = ""

    @property
    def bandwidth(self) -> Figure | None:
        """DRAM bandwidth in byte/s, if known."""
        return self.figures.get("memory_bandwidth")

    def ceiling(self, flops: Flops) -> Ceiling | None:
        """The roof over *flops*: the fastest pipe that does this dtype with this accumulate type.

        A matmul may run on the tensor or the vector pipe, anything else on the vector pipe; special
        functions have no data-sheet roof.
        """
        if flops.kind == "special":
            return None
        pipes = ("tensor", "vector") if flops.kind == "matmul" else ("vector",)
        fitting = [
            c
            for c in self.compute
            if c.pipe in pipes
            and c.dtype == flops.dtype
            and flops.accumulate in ("", c.accumulate)
        ]
        return max(fitting, key=lambda c: c.rate.value, default=None)
