"""Reduce the log of a simulation to its figures, and test it by Little's law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from gpuperf.model.record import Caveat
from gpuperf.theory.serving.load import Load, Server
from gpuperf.theory.serving.log import STRETCH, Log

if TYPE_CHECKING:
    Array = numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]

SHARES = (0.5, 0.9, 0.99)  # of the latencies that are shown
ROUNDS = 48  # halvings of the range in which a quantile is searched
LITTLE = 1e-6  # relative error of N = λ·W, far above that of rounding
POINTS = 400  # of the occupancy over time


@dataclass(frozen=True)
class Outcome:
    """The figures of one simulation, in seconds and tokens.

    `slots_used` is the share of slots × passes that wrote a token, of the passes that wrote any.
    `ttft_s` and `tbt_s` have the quantiles SHARES of the times to the first token and between two
    tokens. `stored`, `reserved` and `saved` are means over the duration, of the tokens in the cache
    that requests still need, of the tokens reserved, and of those that a shared prefix saves.
    `present` is N of Little's law, `little` the relative difference between N and λ·W.
    `occupancy` has (seconds, reserved tokens, stored tokens).
    """

    requests: int
    tokens: int
    duration_s: float
    slots_used: float
    ttft_s: tuple[float, ...]
    tbt_s: tuple[float, ...]
    mean_wait_s: float
    stored: float
    reserved: float
    saved: float
    peak: float
    preemptions: int
    recomputed: int
    present: float
    little: float
    occupancy: tuple[tuple[float, float, float], ...]

    @property
    def tokens_per_s(self) -> float:
        """The tokens written a second, from the first arrival to the last token."""
        return self.tokens / self.duration_s

    @property
    def requests_per_s(self) -> float:
        """The requests that ended a second."""
        return self.requests / self.duration_s

    @property
    def waste(self) -> float:
        """The share of the reserved tokens that no request needs."""
        return 1 - self.stored / self.reserved if self.reserved else 0.0

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """A doubt about the simulation itself, if Little's law is violated."""
        if abs(self.little) <= LITTLE:
            return ()
        message = (
            f"Little's law is violated: N = {self.present:.6g} requests were present on average, "
            f"and λ·W is {self.little * 100:+.3g} % off: the simulator lost or doubled time"
        )
        return (Caveat("littles-law", message, "do not use these figures; report the command"),)


def reduce(log: Log, load: Load, server: Server) -> Outcome:
    """Return the figures of *log*, which serves all requests of *load*."""
    columns = numpy.array(log.stretches, dtype=float).T
    rows: dict[str, Array] = dict(zip(STRETCH, columns, strict=True))
    arrival, first = numpy.array(load.arrival_s), numpy.array(log.first_s)
    finish = numpy.array(log.finish_s)
    begin = float(arrival[0])
    duration = float(finish.max()) - begin
    tokens = int(rows["tokens"].sum())
    writing = rows["tokens"] > 0
    slots = server.slots * float(rows["passes"][writing].sum())
    time = rows["duration_s"] / duration
    sharers = numpy.maximum(rows["held"] - 1, 0)
    sojourn = float((finish - arrival).sum())
    return Outcome(
        requests=len(load),
        tokens=tokens,
        duration_s=duration,
        slots_used=tokens / slots,
        ttft_s=tuple(map(float, numpy.quantile(first - arrival, SHARES))),
        tbt_s=gap_quantiles(rows, log.gaps_s, SHARES),
        mean_wait_s=float((first - arrival).mean()),
        stored=float(rows["stored"] @ time),
        reserved=float(rows["reserved"] @ time),
        saved=float(sharers @ time) * server.shared_pages * server.page,
        peak=log.peak,
        preemptions=log.preemptions,
        recomputed=log.recomputed,
        present=log.presence_s / duration,
        little=sojourn / log.presence_s - 1,
        occupancy=_occupancy(rows, begin),
    )


def gap_quantiles(
    rows: dict[str, Array], gaps: Sequence[float], shares: Sequence[float]
) -> tuple[float, ...]:
    """Return the quantiles of the gaps between two tokens; none where no request wrote two.

    A stretch has gaps `first, first + slope, …`, each once for each of its writers, so the gaps up
    to a time are counted by a division, and the quantile is searched by halving.
    """
    some = (rows["writers"] > 0) & (rows["passes"] > 0)
    passes, slope = rows["passes"][some], rows["slope_s"][some]
    low = rows["first_s"][some] + numpy.minimum(slope, 0) * (passes - 1)
    step, weight = numpy.abs(slope), rows["writers"][some]
    if gaps:
        further = numpy.array(gaps)
        ones, zeros = numpy.ones_like(further), numpy.zeros_like(further)
        low, passes = numpy.append(low, further), numpy.append(passes, ones)
        step, weight = numpy.append(step, zeros), numpy.append(weight, ones)
    if not len(low):
        return ()
    total, high = float(passes @ weight), low + step * (passes - 1)
    inverse = numpy.divide(1, step, out=numpy.zeros_like(step), where=step > 0)

    def count(time: float) -> float:
        steps = numpy.where(step > 0, (time - low) * inverse + 1, passes)
        within = numpy.clip(numpy.floor(steps), 0, passes)
        return float(numpy.where(low <= time, within, 0) @ weight)

    quantiles = []
    for share in shares:
        below, above = 0.0, float(high.max())
        for _ in range(ROUNDS):
            middle = (below + above) / 2
            below, above = (below, middle) if count(middle) >= share * total else (middle, above)
        quantiles.append(above)
    return tuple(quantiles)


def _occupancy(rows: dict[str, Array], begin: float) -> tuple[tuple[float, float, float], ...]:
    """Return the tokens reserved and stored at POINTS times, zero while the server is idle."""
    starts, ends = rows["start_s"], rows["start_s"] + rows["duration_s"]
    times = numpy.linspace(begin, float(ends[-1]), POINTS)
    place = numpy.maximum(numpy.searchsorted(starts, times, side="right") - 1, 0)
    busy = (times >= starts[place]) & (times <= ends[place])
    reserved = numpy.where(busy, rows["reserved"][place], 0.0)
    stored = numpy.where(busy, rows["stored"][place], 0.0)
    points = zip((times - begin).tolist(), reserved.tolist(), stored.tolist(), strict=True)
    return tuple(points)
