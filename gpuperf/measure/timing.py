"""Define `Timing`: the times of one call, with their kernels and caveats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpuperf.model.gang import RankTimes
from gpuperf.model.record import Caveat, Kernel, TimerFacts
from gpuperf.model.samples import Samples
from gpuperf.model.times import TimeName
from gpuperf.model.workload import Value


@dataclass(frozen=True)
class Timing:
    """The times of a call by name, which of them is primary, and the caveats about them.

    `kernels` counts the kernels of a call by name; `launches` has their names in order of start.
    `stop` says why sampling ended, `capture_s` how long it took to capture a CUDA graph. In a gang,
    `ranks` has the times of this rank alone, and `chosen` what the library chose for the call.
    """

    times: Mapping[TimeName, Samples]
    primary: TimeName
    stop: Literal["precision", "budget", "samples"]
    facts: TimerFacts
    kernels: tuple[Kernel, ...] = ()
    launches: tuple[str, ...] = ()
    capture_s: float | None = None
    caveats: tuple[Caveat, ...] = ()
    ranks: tuple[RankTimes, ...] = ()
    chosen: Mapping[str, Value] = field(default_factory=dict)

    @property
    def clock_hz(self) -> float | None:
        """The SM clock during the primary samples."""
        return self.times[self.primary].clock_hz
