"""In how many cycles had the SMs work, and were their pipes busy, while a call ran at its speed?

A profiler's range around a kernel starts and ends it with the machine drained: after a rest of 4 ms
a matmul of 5.6 µs was resident for 10 100 cycles so, and for 7 500 in a window (H200). So the range
is pushed around the timer's own window, whose first kernel spins until the call is queued, and what
that window counts without a call is taken off. Whether the call takes as long as without counters
is read from the stamps, as in timing, not from the range, whose ends are as late as they like.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from gpuperf.measure.counters.cupti import Cupti, NoCounters
from gpuperf.measure.counters.ranges import BY_WINDOW, RangeProfiler
from gpuperf.measure.timers.timer import Call, do_nothing
from gpuperf.measure.timers.window import Window
from gpuperf.model.contract import Cache
from gpuperf.model.metrics import CYCLES, choose, per_sm, with_peaks

WINDOWS = 9  # a pass
LEAST_SPIN, SPIN_HZ = 400_000, 4e9  # cycles; twice what the host needs, at 2 GHz


def count_cycles(
    cupti: Cupti, device_index: int, window: Window, call: Call, cache: Cache, gap_s: float
) -> Mapping[str, float]:
    """A mean over SMs, `active_cycles`, `tensor_cycles`, `fma_cycles` and `fp64_cycles` of *call*
    alone; and `extra_cycles`, by which it took longer than it does without counters.

    Those of a pipe are cycles of all of it. Medians. Raises: NoCounters, CannotBlock.
    """
    # All of one sort and then all of the other, as calls are timed.
    sorts = [call] * WINDOWS + [do_nothing] * WINDOWS
    plain = [window.take(what, gap_s, cache) for what in sorts]
    spin = max(LEAST_SPIN, int(SPIN_HZ * max(reading.queued_s for reading in plain)))
    with RangeProfiler(cupti, device_index) as profiler:
        chosen = choose(CYCLES, profiler.metrics)
        names = with_peaks([name for group in chosen.values() for name in group])
        profiler.configure(names, BY_WINDOW)
        stamped: list[list[int | None]] = []

        def run() -> None:
            stamped.append([window.count(what, spin, gap_s, cache, profiler) for what in sorts])

        found = [per_sm(chosen, names, values) for values in profiler.profile(run)]
    if len(found) != 2 * WINDOWS:
        raise NoCounters("no-samples", f"the profiler saw {len(found)} of {2 * WINDOWS} windows")
    counts = {
        quantity: max(0.0, _longer([counted[quantity] for counted in found]) or 0.0)
        for quantity in found[0]
    }
    # A window that is counted is longer, with nothing in it too: by 0.1 µs on an H200.
    with_counters = [extra for passed in stamped if (extra := _longer(passed)) is not None]
    without = _longer([reading.cycles for reading in plain])
    if with_counters and without is not None:
        counts["extra_cycles"] = statistics.median(with_counters) - without
    return counts


def _longer(windows: Sequence[float | None]) -> float | None:
    """By how much the windows of the call, the first half, are above those of nothing (medians)."""
    halves = [
        [value for value in half if value is not None]
        for half in (windows[:WINDOWS], windows[WINDOWS:])
    ]
    if not all(halves):
        return None
    return statistics.median(halves[0]) - statistics.median(halves[1])
