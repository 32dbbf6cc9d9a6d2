"""Define the times of the ranks of a gang, and what NCCL itself predicts for a collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuperf.model.samples import Samples

if TYPE_CHECKING:
    from gpuperf.model.times import TimeName
else:
    TimeName = str  # when a file is decoded: a newer version has other names

LONGEST_S, MOST_BYTES_PER_S = 1e3, 1e15  # limits of a plausible prediction


@dataclass(frozen=True)
class RankTimes:
    """The times of one rank of a gang, on the device of index `device`, in the order taken: the
    samples of all ranks at one place are of the same call. `host` is empty in a gang of one host.
    """

    rank: int
    device: int
    times: Mapping[TimeName, Samples] = field(default_factory=dict)
    host: str = ""


@dataclass(frozen=True)
class TunedTime:
    """NCCL's prediction for a collective by one algorithm and one protocol.

    A collective of an array of S bytes takes `latency_s` + S / `bytes_per_s` seconds. NCCL takes
    the algorithm and the protocol that it predicts to be the fastest.
    """

    collective: str
    algorithm: str
    protocol: str
    latency_s: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.latency_s < LONGEST_S or not 0 < self.bytes_per_s < MOST_BYTES_PER_S:
            raise ValueError(
                f"{self.collective} cannot take {self.latency_s} s at {self.bytes_per_s} B/s"
            )

    def seconds(self, size: float) -> float:
        """Return the predicted seconds for an array of *size* bytes."""
        return self.latency_s + size / self.bytes_per_s
