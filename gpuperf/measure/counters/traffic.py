"""Measure the bytes that one call moves through DRAM.

Stretches of calls with flushes alternate with equal stretches of flushes alone: the difference is
the traffic of the calls. Each stretch ends with a flush, so that the bytes that a call wrote are
written back within its own stretch.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from gpuperf.measure.counters.cupti import NoCounters
from gpuperf.measure.counters.dram import DramSampler, Traffic
from gpuperf.measure.timers.timer import Call, do_nothing
from gpuperf.model.contract import Cache

STRETCH_S, MOST_CALLS = 4e-3, 200  # of a stretch of calls
LEAST_PAIRS, MOST_PAIRS = 3, 8  # of a stretch with calls and one without
IDLE_S = 0.01
FLUSHES = (4, 12)  # flushes in two stretches, whose difference is the traffic of eight
LEAST_BYTES = 64 << 10  # the precision of a call that moves less is relative to this
# Student's t by the number of pairs: T_STOP for 95 % decides when sampling stops, T_REPORT for
# 97.5 % gives the reported uncertainty. Sampling may stop because values agree by chance, so an
# interval by T_STOP would contain the truth in only 91 % of cases at a noise of 1 % a pair; one by
# T_REPORT does in at least 94 % at any noise (tests/measure/counters/test_traffic.py).
T_STOP = {3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}
T_REPORT = {3: 6.21, 4: 4.18, 5: 3.50, 6: 3.16, 7: 2.97, 8: 2.84}

COPIED_L2_SIZES = (4, 8)
LARGEST_FACTOR, FACTOR_TOLERANCE, MOST_INTERCEPT = 4, 0.02, 0.05

Flush = Callable[[Cache], None]


@dataclass(frozen=True)
class Calibration:
    """The DRAM counters compared with copies of known size.

    `ratio` is the bytes counted over the bytes moved, and `factor` the nearest whole number, by
    which counts are divided. `flush_bytes` is the count of one flush; `intercept` the share of the
    larger copy's count that does not grow with its size.
    """

    factor: int = 1
    flush_bytes: float = 0.0
    ratio: float = 1.0
    intercept: float = 0.0

    @property
    def error(self) -> float:
        """The relative error of the counters after they are divided by `factor`."""
        return abs(self.ratio / self.factor - 1)


@dataclass(frozen=True)
class Moved:
    """DRAM bytes of one call, half the 95 % interval of their sum, and the bytes of one flush.

    `calls` is the number of calls that were counted.
    """

    read: float
    written: float
    uncertainty: float
    calls: int
    flush_bytes: float = 0.0

    @property
    def total(self) -> float:
        return self.read + self.written


def measure_traffic(
    sampler: DramSampler,
    call: Call,
    flush: Flush,
    cache: Cache,
    call_s: float,
    heard: Callable[[], None] = do_nothing,
    precision: float = 0.01,
    budget_s: float = 0.3,
) -> Moved:
    """Count the DRAM bytes of *call*, which takes about *call_s* seconds.

    Counting ends when the 95 % interval is within ± *precision* (a fraction), or after *budget_s*.
    Under `cold` and `cold-dirty` a flush precedes each call; under `hot` and `rotate` the calls
    follow each other. *heard* is called at every stretch. Raises: NoCounters.
    """
    began = time.perf_counter()
    flushed = cache in ("cold", "cold-dirty")
    count = max(1, min(MOST_CALLS, int(STRETCH_S / call_s))) if call_s > 0 else MOST_CALLS
    idle = _idle(sampler)
    reads, writes = list[float](), list[float]()

    def stretch(calls: bool) -> Traffic:
        heard()
        call()  # so that caches and lines to write back are the same before each stretch
        torch.cuda.synchronize()
        run = _stretch(call if calls else None, flush, cache, flushed, count)
        return _less_idle(sampler.count(run), idle)

    while True:
        full, empty = stretch(calls=True), stretch(calls=False)
        reads.append((full.read - empty.read) / count)
        writes.append((full.written - empty.written) / count)
        pairs = len(reads)
        if pairs < LEAST_PAIRS:
            continue
        read, written = statistics.fmean(reads), statistics.fmean(writes)
        sums = [r + w for r, w in zip(reads, writes, strict=True)]
        error = statistics.stdev(sums) / math.sqrt(pairs)
        enough = precision / 2 * max(read + written, LEAST_BYTES)
        spent = time.perf_counter() - began > budget_s
        if T_STOP[pairs] * error <= enough or spent or pairs >= MOST_PAIRS:
            flush_bytes = _flush_bytes(sampler, flush, idle)
            return Moved(read, written, T_REPORT[pairs] * error, pairs * count, flush_bytes)


def _flush_bytes(sampler: DramSampler, flush: Flush, idle: Traffic) -> float:
    """Return the bytes that one flush reads, from the difference of two numbers of flushes."""
    few, many = (
        _less_idle(sampler.count(_stretch(None, flush, "cold", True, count)), idle).read
        for count in FLUSHES
    )
    return (many - few) / (FLUSHES[1] - FLUSHES[0])


def _idle(sampler: DramSampler) -> Traffic:
    """Count the traffic of the idle machine.

    The first sample of a stretch also holds earlier traffic, so one stretch is discarded.
    """
    torch.cuda.synchronize()
    sampler.count(lambda: time.sleep(1e-3))
    return sampler.count(lambda: time.sleep(IDLE_S))


def _stretch(
    call: Call | None, flush: Flush, cache: Cache, flushed: bool, count: int
) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            if flushed:
                flush(cache)
            if call is not None:
                call()
        flush("cold")
        torch.cuda.synchronize()

    return run


def _less_idle(traffic: Traffic, idle: Traffic) -> Traffic:
    share = traffic.seconds / idle.seconds
    return Traffic(
        traffic.read - share * idle.read, traffic.written - share * idle.written, traffic.seconds
    )


def calibrate(
    sampler: DramSampler, flush: Flush, l2_bytes: int, device: torch.device
) -> Calibration:
    """Compare the counters with copies of two sizes; constant traffic cancels in their difference.

    Raises: NoCounters if the ratio of counted bytes to moved bytes is not a whole number.
    """
    free, _ = torch.cuda.mem_get_info(device)
    copies = []
    for sizes in COPIED_L2_SIZES:
        size = min(sizes * l2_bytes, free * sizes // 64)
        source = torch.ones(size // 4, dtype=torch.float32, device=device)
        target = torch.empty_like(source)
        copy = partial(target.copy_, source)
        copies.append((4 * source.numel(), measure_traffic(sampler, copy, flush, "cold", 0.0003)))
    return read_calibration(copies)


def read_calibration(copies: Sequence[tuple[int, Moved]]) -> Calibration:
    """Return the calibration by two copies, each given by its tensor's bytes and its counted bytes.

    Raises: NoCounters.
    """
    (small, at_small), (large, at_large) = copies
    size = large - small
    slopes = ((at_large.read - at_small.read) / size, (at_large.written - at_small.written) / size)
    factor = max(1, min(LARGEST_FACTOR, round(slopes[0])))
    if any(abs(slope / factor - 1) > FACTOR_TOLERANCE for slope in slopes):
        raise NoCounters(
            "uncalibrated",
            f"the counters show {slopes[0]:.3f} times the bytes that a copy reads and "
            f"{slopes[1]:.3f} times those that it writes, which are not the same whole number",
        )
    ratio = statistics.fmean(slopes)
    intercept = (at_large.total - 2 * ratio * large) / at_large.total
    if abs(intercept) > MOST_INTERCEPT:
        raise NoCounters(
            "uncalibrated",
            f"{intercept * 100:.1f} % of the bytes that the counters show for a copy do not grow "
            "with its size",
        )
    return Calibration(factor, at_large.flush_bytes, ratio, intercept)
