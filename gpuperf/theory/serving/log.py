"""Record what a simulation did: a row for each stretch of alike passes, the times of each request.

A stretch is `passes` passes of the same sequences, of which the first lasts `first_s` and each
further one `slope_s` longer. The rows are tuples, since a simulation writes many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Stretch = tuple[float, float, int, float, float, int, int, int, float, float]
STRETCH = (  # the columns of a stretch
    *("start_s", "duration_s", "passes", "first_s", "slope_s"),
    *("writers", "tokens", "held", "stored", "reserved"),
)


@dataclass
class Log:
    """What happened: stretches with the columns STRETCH, and times by request.

    `writers` are the requests that wrote a token in every pass of the stretch and had written one
    before; `tokens` are all tokens that the stretch wrote; `held` are the sequences with tokens in
    the cache. `stored` and `reserved` are the means of the tokens in the cache that requests still
    need, and of the tokens that the cache had room for in their places. `gaps_s` has gaps between
    two tokens that no stretch has.
    """

    first_s: list[float]
    finish_s: list[float]
    stretches: list[Stretch] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    presence_s: float = 0.0  # the seconds of all requests in the system, as the server counted them
    preemptions: int = 0
    recomputed: int = 0  # tokens
    peak: float = 0.0  # most tokens reserved at once

    @classmethod
    def of(cls, requests: int) -> Log:
        """Return an empty log of *requests* requests."""
        return cls([0.0] * requests, [0.0] * requests)


class Clock:
    """The time of a server, which counts the requests that have arrived, and their presence."""

    def __init__(self, arrivals: Sequence[float], log: Log) -> None:
        self.now = 0.0
        self.arrived = self.ended = 0  # requests
        self._arrivals, self._log, self._count = arrivals, log, len(arrivals)

    @property
    def next_s(self) -> float:
        """The arrival of the next request, infinity after the last."""
        return self._arrivals[self.arrived] if self.arrived < self._count else float("inf")

    def idle(self) -> None:
        """Pass the time to the next arrival."""
        self.now = max(self.now, self.next_s)
        self._receive()

    def advance(self, duration_s: float) -> None:
        """Pass *duration_s* seconds, in which no request ends."""
        present = self.arrived - self.ended
        self.now += duration_s
        self._log.presence_s += present * duration_s + self._receive()

    def _receive(self) -> float:
        """Count the requests that have arrived; return the seconds that they are present."""
        arrivals, arrived, now, present_s = self._arrivals, self.arrived, self.now, 0.0
        while arrived < self._count and arrivals[arrived] <= now:
            present_s += now - arrivals[arrived]
            arrived += 1
        self.arrived = arrived
        return present_s
