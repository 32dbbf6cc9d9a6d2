"""Time batches of calls that follow each other without a rest."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch

from gpuperf.measure.timers.timer import Call
from gpuperf.measure.timers.window import Window
from gpuperf.model.samples import Samples

BATCH_S, MOST_CALLS, BATCHES = 2e-3, 200, 7  # length of a batch of `wall_times`, and how many
UNFINISHED_RUN_S = 1e-3  # calls of this duration together precede the wait for their stream
LONG_S = 0.05  # a call that takes longer is timed in three batches

# Long enough that a sample shows the load and not the power controller, which swings by 5 %
# within half a second (H200).
SUSTAINED_BATCH_S = 0.2
AHEAD = 3  # batches queued while one runs: the device never waits for the host
FLAT = 0.005  # relative change from one fifth of the settling time to the next that counts as flat
NOISE_SIGMAS = 2  # standard errors of that change, within which it is noise
LEAST_S = 1.0  # seconds of load before time and clock may count as steady


def unfinished_s(call: Call, call_s: float) -> float:
    """Return the seconds per call for which the device works on after the current stream is done.

    Calls of *call_s* follow each other for a millisecond, so that their work on other streams adds
    up and the lateness of the host (tens of microseconds) does not. A wait for an idle device takes
    a busy host up to 60 µs, so it is subtracted. Work on another stream that is shorter than the
    call's own work and ends with it is not detected.
    """
    calls = _batch_size(UNFINISHED_RUN_S, call_s)
    left, idle = [], []
    for _ in range(3):
        torch.cuda.synchronize()
        for _ in range(calls):
            call()
        torch.cuda.current_stream().synchronize()
        done = time.perf_counter()
        torch.cuda.synchronize()
        finished = time.perf_counter()
        torch.cuda.synchronize()
        left.append(finished - done)
        idle.append(time.perf_counter() - finished)
    return max(0.0, min(left) - statistics.median(idle)) / calls


def wall_times(call: Call, call_s: float) -> Samples:
    """Return the wall time of a call in batches that end with a synchronization.

    The slower of the host's launching and the device determines it. The cache is hot.
    """
    calls = _batch_size(BATCH_S, call_s)
    values = []
    for _ in range(3 if call_s > LONG_S else BATCHES):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        values.append((time.perf_counter() - began) / calls)
    return Samples(tuple(values), calls_per_window=calls)


def _batch_size(batch_s: float, call_s: float) -> int:
    return max(1, min(MOST_CALLS, math.ceil(batch_s / max(call_s, 1e-9))))


def sustain(
    window: Window,
    call: Call,
    call_s: float,
    settle_s: float,
    on_sample: Callable[[int], None] = lambda count: None,
) -> tuple[Samples, Samples, bool]:
    """Repeat *call* until time and clock are flat, for *settle_s* seconds at most.

    Return the samples of the first second, those of the last fifth, and whether time and clock
    were flat. Each sample is the mean of a batch of 0.2 s between two stamps of the device.
    """
    calls = max(1, math.ceil(SUSTAINED_BATCH_S / max(call_s, 1e-7)))
    stretch = 2
    times: list[float] = []
    clocks: list[float | None] = []
    steady = False
    began = time.perf_counter()
    for time_s, clock_hz in window.stream(call, calls, AHEAD):
        times.append(time_s / calls)
        clocks.append(clock_hz)
        stretch = max(2, math.ceil(settle_s / 5 / max(time_s, 1e-6)))
        on_sample(len(times))
        elapsed = time.perf_counter() - began
        flat = len(times) >= 2 * stretch and is_flat(times, stretch) and is_flat(clocks, stretch)
        steady = flat and elapsed >= LEAST_S
        if steady or elapsed >= settle_s:
            break
    head = 1
    while head < len(times) and sum(times[:head]) * calls < 1.0:
        head += 1
    tick_s = window.tick_s / calls

    def samples(part: slice) -> Samples:
        return Samples(tuple(times[part]), tuple(clocks[part]), tick_s, calls_per_window=calls)

    return samples(slice(head)), samples(slice(-stretch, None)), steady


def is_flat(values: Sequence[float | None], stretch: int) -> bool:
    """Return whether the mean of the last *stretch* values equals that of the *stretch* before.

    A difference of 0.5 %, or within the noise, counts as equal; so do fewer than two values.
    """
    last = [v for v in values[-stretch:] if v is not None]
    before = [v for v in values[-2 * stretch : -stretch] if v is not None]
    if len(last) < 2 or len(before) < 2:
        return True
    change = statistics.fmean(last) - statistics.fmean(before)
    errors = [statistics.variance(part) / len(part) for part in (last, before)]
    noise = NOISE_SIGMAS * math.sqrt(sum(errors))
    return abs(change) <= max(FLAT * statistics.fmean(before), noise)
