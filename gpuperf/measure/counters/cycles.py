"""Count the cycles in which SMs had work and their pipes were busy, in a call at full speed.

A profiler's range around one kernel waits for an idle device before and after it: after a rest of
4 ms a matmul of 5.6 µs was resident for 10 100 cycles in a range, and for 7 500 in the timer's
window (H200). So the range encloses the timer's window, whose first kernel spins until the call is
queued, and the counts of a window without a call are subtracted. The stamps of the window show
whether the call takes longer than without counters; the ends of the range do not show it.
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

WINDOWS = 9  # windows with the call in a pass, and as many without it
# The first kernel spins for twice the time in which the host queues a call, at 2 GHz, or longer.
LEAST_SPIN, SPIN_HZ = 400_000, 4e9  # cycles, and cycles a second


def count_cycles(
    cupti: Cupti, device_index: int, window: Window, call: Call, cache: Cache, gap_s: float
) -> Mapping[str, float]:
    """Return the medians of `active_cycles`, `tensor_cycles`, `fma_cycles` and `fp64_cycles`.

    These are cycles of *call* alone, as means over the SMs: those with work on the SM, and those in
    which all of a pipe would have been busy. `extra_cycles` are the SM cycles that the counters
    added to the call. *gap_s* is the rest before each window. Raises: NoCounters, CannotBlock.
    """
    # First all windows of the call and then all empty ones, as calls are timed.
    calls = [call] * WINDOWS + [do_nothing] * WINDOWS
    plain = [window.take(each, gap_s, cache) for each in calls]
    spin = max(LEAST_SPIN, int(SPIN_HZ * max(reading.queued_s for reading in plain)))
    with RangeProfiler(cupti, device_index) as profiler:
        chosen = choose(CYCLES, profiler.metrics)
        names = with_peaks([name for group in chosen.values() for name in group])
        profiler.configure(names, BY_WINDOW)
        stamped: list[list[int | None]] = []

        def run() -> None:
            stamped.append([window.count(each, spin, gap_s, cache, profiler) for each in calls])

        windows = [per_sm(chosen, names, values) for values in profiler.profile(run)]
    if len(windows) != 2 * WINDOWS:
        raise NoCounters("no-samples", f"the profiler saw {len(windows)} of {2 * WINDOWS} windows")
    counts = {
        quantity: max(0.0, _longer([counted[quantity] for counted in windows]) or 0.0)
        for quantity in windows[0]
    }
    # A window that is counted is longer, also when empty: by 0.1 µs on an H200.
    with_counters = [extra for passed in stamped if (extra := _longer(passed)) is not None]
    without = _longer([reading.cycles for reading in plain])
    if with_counters and without is not None:
        counts["extra_cycles"] = statistics.median(with_counters) - without
    return counts


def _longer(windows: Sequence[float | None]) -> float | None:
    """Return the median of the first half of *windows* less that of the second, empty half."""
    halves = [
        [value for value in half if value is not None]
        for half in (windows[:WINDOWS], windows[WINDOWS:])
    ]
    if not all(halves):
        return None
    return statistics.median(halves[0]) - statistics.median(halves[1])
