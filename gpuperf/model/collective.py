"""Define a collective operation between ranks, its bytes, and its rates.

The rates are those of nccl-tests (doc/PERFORMANCE.md): algbw is the whole array over the time,
busbw what one direction of a rank's link carries in a ring. The array is that of an all-gather's
result, of a reduce-scatter's input, of one rank's whole buffer in an all-to-all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The names of collectives, as each library spells them without separators: the first that occurs.
SPELLINGS = {
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "barrier": "barrier",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
}
# No rank leaves one of these before all have come, so that a rank that is early waits in it.
JOINT = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


def collective_name(text: str) -> str:
    """Return the name of the collective in *text* (`c10d::_allgather_base_`: `all_gather`; empty if
    there is none)."""
    plain = re.sub(r"[\W_]", "", text.lower())
    return next((name for spelling, name in SPELLINGS.items() if spelling in plain), "")


def bus_factor(name: str, ranks: int) -> float:
    """Return busbw over algbw of the collective *name* between *ranks* ranks."""
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if name in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


@dataclass(frozen=True)
class Message:
    """A message of a collective: the bytes of its whole array (0: unknown), the *dtype*, the number
    of *ranks* in its group (0: unknown), and the name of the *group* (empty: unknown)."""

    name: str
    bytes: int = 0
    dtype: str = ""
    ranks: int = 0
    group: str = ""


@dataclass(frozen=True)
class Collective:
    """A collective of a region, with all its calls of one size in one group.

    `seconds` has, for each traced step, the time of each call on this rank in order: of its kernel
    on a GPU, of the backend's thread on a CPU. It includes the time in which the rank waits for
    others. `starts` has the begin of each call, in seconds by the clock of the trace.
    In a mean step the calls are *exposed_s* seconds long while no compute runs. `kernel` is the
    name of the kernel or event.
    """

    message: Message
    kernel: str
    seconds: tuple[tuple[float, ...], ...]
    exposed_s: float = 0.0
    starts: tuple[tuple[float, ...], ...] = ()

    @property
    def count(self) -> float:
        """Calls in a mean step."""
        return sum(map(len, self.seconds)) / len(self.seconds) if self.seconds else 0.0

    @property
    def step_s(self) -> float:
        """Seconds of all calls in a mean step."""
        return sum(map(sum, self.seconds)) / len(self.seconds) if self.seconds else 0.0

    def algbw(self, call_s: float) -> float | None:
        """Return the bytes of the whole array over *call_s* seconds; None if they are unknown."""
        return self.message.bytes / call_s if self.message.bytes and call_s > 0 else None

    def busbw(self, call_s: float) -> float | None:
        """Return what a rank's link carries in one direction if a call takes *call_s* seconds; None
        if the bytes or the number of ranks are unknown."""
        rate, ranks = self.algbw(call_s), self.message.ranks
        return None if rate is None or not ranks else rate * bus_factor(self.message.name, ranks)
