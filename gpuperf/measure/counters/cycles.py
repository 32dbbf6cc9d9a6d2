"""In how many cycles had the SMs work, and were their pipes busy, while a call ran at its speed?

A profiler's range around a kernel starts and ends it with the machine drained: on an H200 a matmul
of 5.6 µs is resident for 10 100 cycles so, and for 7 500 as it runs. So the range is pushed around
the timer's own window, whose first kernel spins until the call is queued, and what that window
counts without a call is taken off. Whether the call takes as long as without counters is read from
the stamps, as in timing, not from the range, whose ends are as late as they like.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from gpuperf.measure.counters.cupti import Cupti, NoCounters
from gpuperf.measure.counters.ranges import RangeProfiler
from gpuperf.measure.timers.timer import Call, do_nothing
from gpuperf.measure.timers.window import Window
from gpuperf.model.contract import Cache
from gpuperf.model.metrics import CYCLES, choose, per_sm, with_peaks

__all__ = ["count_cycles"]

WINDOWS = 9  # a pass
LEAST_SPIN, SPIN_HZ = 400_000, 4e9  # cycles; twice what the host needs, at 2 GHz


def count_cycles(
    cupti: Cupti, device_index: int, window: Window, call: Call, cache: Cache, gap_s: float
) -> Mapping[str, float]:
    """A mean over SMs, `active_cycles`, `tensor_cycles`, `fma_cycles` and `fp64_cycles` of *call*
    alone; and `extra_cycles`, by which it took longer than it does without counters.

    Those of a pipe are cycles of all of it. Medians. Raises: NoCounters, CannotBlock.
    """
    plain = [(window.take(call, gap_s, cache), window.take(do_nothing, gap_s, cache))
             for _ in range(WINDOWS)]  # fmt: skip
    spin = max(LEAST_SPIN, int(SPIN_HZ * max(reading.queued_s for reading, _ in plain)))
    with RangeProfiler(cupti, device_index) as profiler:
        chosen = choose(CYCLES, profiler.metrics)
        names = with_peaks([name for group in chosen.values() for name in group])
        profiler.configure(names, windows=True)
        stamped: list[tuple[int | None, int | None]] = []

        def run() -> None:
            for _ in range(WINDOWS):
                one = window.count(call, spin, gap_s, cache, profiler)
                stamped.append((one, window.count(do_nothing, spin, gap_s, cache, profiler)))

        found = [per_sm(chosen, names, values) for values in profiler.profile(run)]
    if len(found) != 2 * WINDOWS:
        raise NoCounters("no-samples", f"the profiler saw {len(found)} of {2 * WINDOWS} windows")
    counts = {
        quantity: max(0.0, _median(found[::2], quantity) - _median(found[1::2], quantity))
        for quantity in found[0]
    }
    # A window that is counted is longer, with nothing in it too: by 0.1 µs on an H200.
    extra, without = _longer(stamped), _longer([(a.cycles, b.cycles) for a, b in plain])
    if extra is not None and without is not None:
        counts["extra_cycles"] = extra - without
    return counts


def _longer(pairs: Sequence[tuple[int | None, int | None]]) -> float | None:
    """By how many cycles the first ones of *pairs* are longer than the second ones."""
    sides = [[cycles for cycles in side if cycles is not None] for side in zip(*pairs, strict=True)]
    if not all(sides):
        return None
    return float(statistics.median(sides[0]) - statistics.median(sides[1]))


def _median(found: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.median(values[name] for values in found)
