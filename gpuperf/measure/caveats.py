"""What must a reader know of the samples of a case?"""

from __future__ import annotations

import statistics

from gpuperf.measure.deviation import UNIT_ROUNDOFF
from gpuperf.measure.stopwatch import Timing
from gpuperf.model.record import Caveat, Record
from gpuperf.model.samples import Samples, correlation
from gpuperf.model.workload import Point, Workload
from gpuperf.units import format_interval, format_time

SLOWED = 0.9  # of the highest SM clock: below it a word is due
HOPELESS = 0.5  # a precision beyond which more samples would not help
FEW_SAMPLES = 6  # under which no order statistics span 95 %
LEAST_EVENTS_S = 20e-6  # a plain event pair adds launch cost and 2 µs: a tenth of this
ALTERNATING_FROM = 20  # samples, from which on the two times are told apart from noise
ALTERNATING_SHARE = 0.02  # of the median, between even and odd samples
ALTERNATING_CORRELATION = -0.4  # of each sample with the next, and below
FLOOR_SHARE = 0.02  # of a time: beyond it the uncertainty of the timer's floor is worth a word


def _clock_doubts(clock_hz: float | None, most_hz: float | None) -> list[Caveat]:
    """The clock inside the samples tells of power and heat sooner than any sensor."""
    if not clock_hz or not most_hz or clock_hz > SLOWED * most_hz:
        return []
    return [
        Caveat(
            "slowed",
            f"the SM clock inside the samples was under {SLOWED * 100:.0f} % of its most, "
            f"{most_hz / 1e6:.0f} MHz",
            "power, heat or a lock may be the cause; see the MFU at the clock",
        )
    ]


def sample_caveats(
    record: Record, timing: Timing, workload: Workload, point: Point, most_clock_hz: float | None
) -> list[Caveat]:
    """What a reader must know of these samples."""
    samples, contract = timing.times[timing.primary], record.contract
    caveats = _clock_doubts(samples.clock_hz, most_clock_hz)
    rounding, check = workload.rounds_inputs_to(point), record.check
    if rounding and check and check.error <= check.tolerance - 6 * UNIT_ROUNDOFF[rounding]:
        caveats.append(
            Caveat(
                "dtype-path",
                f"too exact for {rounding}: the inputs were not rounded, so another path ran",
                "is NVIDIA_TF32_OVERRIDE=0 set?",
            )
        )
    known = samples.size >= FEW_SAMPLES and samples.sampling_precision <= contract.precision
    if timing.stop != "precision" and contract.regime == "burst" and not known:
        caveats.append(_ended_early(samples, timing.stop == "budget", contract.budget_s))
    if contract.regime == "sustained" and samples.sampling_precision > contract.precision:
        caveats.append(
            Caveat(
                "imprecise",
                f"± {samples.sampling_precision * 100:.1f} %: clock and time swing under the load",
                "give --settle more seconds",
            )
        )
    return caveats + _alternating_doubts(samples) + _timer_doubts(record, samples.median_s)


def _ended_early(samples: Samples, spent: bool, budget_s: float) -> Caveat:
    """How well the time is known when sampling ended short of its aim."""
    few = samples.size < FEW_SAMPLES
    low, high = samples.interval_s
    interval = format_interval(samples.median_s, max(low, 0.0), high)
    short = (
        f"{samples.size} samples tell little of their own spread"
        if few
        else f"{interval} after {samples.size} samples"
    )
    ended = f"{budget_s:g} s were spent" if spent else "no more are taken"
    hint = "give --budget more seconds" if spent else "such noise does not average out"
    if samples.sampling_precision > HOPELESS:
        hint = "other work disturbs this machine, and more seconds do not help: measure it idle"
    return Caveat("few-samples" if few else "imprecise", f"{short}, when {ended}", hint)


def _alternating_doubts(samples: Samples) -> list[Caveat]:
    """A call whose time goes up and down from sample to sample has two times, and the median is
    somewhere between them."""
    values, median_s = samples.values_s, samples.median_s
    if samples.size < ALTERNATING_FROM or correlation(values) > ALTERNATING_CORRELATION:
        return []
    apart_s = abs(statistics.median(values[::2]) - statistics.median(values[1::2]))
    if apart_s <= ALTERNATING_SHARE * median_s:
        return []
    return [
        Caveat(
            "alternating",
            f"the samples alternate between two times that differ by {format_time(apart_s)}, "
            f"{apart_s / median_s * 100:.1f} % of the median",
            "the median lies between the two times; compare the span, or --timer graph",
        )
    ]


def _timer_doubts(record: Record, median_s: float) -> list[Caveat]:
    """What the timer itself adds to so short a time."""
    caveats = []
    if record.contract.timer == "events" and median_s < LEAST_EVENTS_S:
        caveats.append(
            Caveat(
                "uncalibrated",
                "an event pair's own 2 µs and the cost of launching are in the time",
                "choose --timer blocked where it can be had",
            )
        )
    floor = record.timer.floor_uncertainty_s
    if floor > FLOOR_SHARE * median_s:
        caveats.append(
            Caveat(
                "near-floor",
                f"the timer's own floor is uncertain by ± {floor * 1e9:.0f} ns",
                "compare such short kernels within one run only",
            )
        )
    return caveats
