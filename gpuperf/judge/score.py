"""Compute the score of a submission: its speed-ups, and its share of the roof."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpuperf.judge.evidence import CaseEvidence, WindowTime, usual
from gpuperf.judge.task import Side
from gpuperf.model.samples import student
from gpuperf.peaks.bounds import compute_bound

LEAST_WINDOWS = 3  # of each process, for a score
CONFIDENCE = 0.95
MEASURED = "measured"  # id of roofs that `gpuperf calibrate` measured


@dataclass(frozen=True)
class Score:
    """The speed-up over another side with its 95 % interval, and the medians of both times."""

    speedup: float
    low: float
    high: float
    time_s: float
    reference_s: float
    over: str = "processes"


@dataclass(frozen=True)
class Light:
    """The share of the roof, or speed of light: the least time of the cost over the time of a call.

    `limiter` is the roof with the longer least time, and `source` is where the roofs come from. A
    share above 1 says that the data lie in a cache, or that the roof is too low.
    """

    share: float
    least_s: float
    limiter: Literal["memory", "compute"]
    source: str


def score_of(evidence: CaseEvidence, over: Side = "reference") -> Score | None:
    """Return the speed-up over the side *over*; None if too few windows were timed.

    The interval is that of the mean logarithm over processes, by Student's t; of one process, that
    of the median over its windows, by the sign test.
    """
    processes = sorted({w.process for w in evidence.windows})
    pairs = [p for p in (_ratios(evidence.windows, number, over) for number in processes) if p]
    if not pairs or len(pairs) < len(processes):
        return None
    if len(pairs) > 1:
        logs, spread = [statistics.median(pair.logs) for pair in pairs], "processes"
        middle = statistics.fmean(logs)
        half = student(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        low, high = middle - half, middle + half
    else:
        logs, spread = sorted(pairs[0].logs), "windows"
        middle = statistics.median(logs)
        rank = _sign_rank(len(logs))
        low, high = logs[rank], logs[-1 - rank]
    return Score(
        speedup=math.exp(middle),
        low=math.exp(low),
        high=math.exp(high),
        time_s=statistics.median(pair.time_s for pair in pairs),
        reference_s=statistics.median(pair.reference_s for pair in pairs),
        over=spread,
    )


def _sign_rank(count: int) -> int:
    """Return the rank from either end of *count* sorted values that bounds the 95 % interval of
    their median, by the sign test; 0 for few values, whose whole range is then the interval."""
    tail, rank = 0.0, 0
    for below in range(count // 2):
        tail += math.comb(count, below) / 2**count
        if 2 * tail > 1 - CONFIDENCE:
            break
        rank = below
    return rank


@dataclass(frozen=True)
class _Pair:
    """The windows of one process: logarithms of the speed-ups, and medians of both times."""

    logs: list[float]
    time_s: float
    reference_s: float


def _ratios(windows: Sequence[WindowTime], process: int, over: Side) -> _Pair | None:
    """Return the times of a call in each pair of windows; None for too few."""
    mine = [w for w in windows if w.process == process and w.timed]
    empty = [w.clerk_s for w in mine if w.side == "reference" and w.calls == 0]
    floor_s = statistics.median(empty) if empty else 0.0
    by: dict[int, dict[Side, float]] = {}
    for w in usual(mine):
        by.setdefault(w.window, {})[w.side] = _call_s(w, floor_s)
    pairs = [p for p in by.values() if "submission" in p and over in p]
    if len(pairs) < LEAST_WINDOWS:
        return None
    return _Pair(
        [math.log(p[over] / p["submission"]) for p in pairs],
        statistics.median(p["submission"] for p in pairs),
        statistics.median(p[over] for p in pairs),
    )


def _call_s(window: WindowTime, floor_s: float) -> float:
    """Return the seconds of a call, and at least a tenth of its share of the window: the floor of
    the reference's process is not exactly that of the submission's."""
    return max(window.clerk_s - floor_s, window.clerk_s / 10) / window.calls


def light_of(evidence: CaseEvidence, time_s: float) -> Light | None:
    """Return the share of the roof of a call of *time_s* seconds; None without a cost and roofs.

    The least time is the longer of those for the bytes of DRAM and for the FLOPs of the cost.
    """
    cost, roofs = evidence.cost, evidence.roofs
    if cost is None or roofs is None or not time_s > 0:
        return None
    read = sum(b.read for b in cost.bytes if b.channel == "dram")
    bandwidth = roofs.bandwidth_at(read / cost.dram_bytes) if cost.dram_bytes else None
    bound = compute_bound(cost, roofs)
    memory_s = cost.dram_bytes / bandwidth if bandwidth else 0.0
    compute_s = bound.seconds if bound else 0.0
    if (cost.dram_bytes and not bandwidth) or (cost.flops and bound is None):
        return None  # the bound that is unknown may be the longer one
    least_s = max(memory_s, compute_s)
    if not least_s > 0:
        return None
    source = "measured roofs" if roofs.id == MEASURED else f"data sheet of {roofs.name}"
    return Light(least_s / time_s, least_s, "compute" if compute_s > memory_s else "memory", source)
