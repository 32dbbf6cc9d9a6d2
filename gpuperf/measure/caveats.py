"""Derive the caveats of a record from its samples, traces, clocks and telemetry."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from gpuperf.measure.deviation import UNIT_ROUNDOFF
from gpuperf.measure.sampling import Rest
from gpuperf.measure.timers.activity import Trace
from gpuperf.measure.timing import Timing
from gpuperf.model.contract import Contract
from gpuperf.model.record import Caveat, Record, Telemetry
from gpuperf.model.samples import Samples, correlation
from gpuperf.model.timers import LAUNCH_BOUND
from gpuperf.units import format_interval, format_time

SLOWED = 0.9  # of the highest SM clock, below which the caveat `slowed` is due
HOPELESS = 0.5  # a relative precision beyond which more samples would not help
FEW_SAMPLES = 6  # fewest samples whose extremes span a 95 % interval of the median
LEAST_EVENTS_S = 20e-6  # of a call: a plain event pair adds launch cost and 2 µs, a tenth of this
ALTERNATING_FROM = 20  # samples, from which on two times can be distinguished from noise
ALTERNATING_SHARE = 0.02  # of the median: least difference between even and odd samples
ALTERNATING_CORRELATION = -0.4  # highest correlation of each sample with the next
FLOOR_SHARE = 0.02  # of a time, above which the uncertainty of the floor gets a caveat
ODD_SHARE = 0.02  # of the traced calls, above which discarded ones get a caveat
CONTENDED = 0.2  # processors kept busy by other work, above which it affects the times of a CPU


def sample_caveats(
    record: Record, timing: Timing, rounding: str, most_clock_hz: float | None
) -> Iterator[Caveat]:
    """Yield the caveats about the primary samples of *timing*.

    *rounding* is the dtype to which the implementation must round its inputs, empty for none.
    """
    samples, contract = timing.times[timing.primary], record.contract
    precision = samples.sampling_precision
    # The clock inside the samples shows power and heat before any sensor does.
    if samples.clock_hz and most_clock_hz and samples.clock_hz <= SLOWED * most_clock_hz:
        yield Caveat(
            "slowed",
            f"the SM clock inside the samples was under {SLOWED * 100:.0f} % of its maximum of "
            f"{most_clock_hz / 1e6:.0f} MHz",
            "power, heat or a clock lock may be the cause; MFU@clock is relative to that clock",
        )
    check = record.check
    if rounding and check and check.error <= check.tolerance - 6 * UNIT_ROUNDOFF[rounding]:
        yield Caveat(
            "dtype-path",
            f"the result is too exact for {rounding}: the inputs were not rounded to it, so a "
            "kernel of another dtype ran",
            "check whether NVIDIA_TF32_OVERRIDE=0 is set",
        )
    known = samples.size >= FEW_SAMPLES and precision <= contract.precision
    if timing.stop != "precision" and contract.regime == "burst" and not known:
        yield _early_stop(samples, timing.stop == "budget", contract.budget_s)
    if contract.regime == "sustained" and precision > contract.precision:
        yield Caveat(
            "imprecise",
            f"the time is known to ± {precision * 100:.1f} % only: clock and time swing under load",
            "give --settle more seconds",
        )
    yield from _alternating_caveats(samples)
    yield from _timer_caveats(record, samples.median_s)


def _early_stop(samples: Samples, spent: bool, budget_s: float) -> Caveat:
    """Return the caveat on samples that ended before the precision, with the budget if *spent*."""
    few = samples.size < FEW_SAMPLES
    low, high = samples.interval_s
    interval = format_interval(samples.median_s, max(low, 0.0), high)
    precision = (
        f"{samples.size} samples are too few to show their own spread"
        if few
        else f"{interval} after {samples.size} samples"
    )
    end = f"the budget of {budget_s:g} s was spent" if spent else "the most samples were taken"
    hint = "give --budget more seconds" if spent else "more samples do not average such noise out"
    if samples.sampling_precision > HOPELESS:
        hint = "other work disturbs this machine, and more seconds do not help: measure it idle"
    return Caveat("few-samples" if few else "imprecise", f"{precision}: {end}", hint)


def _alternating_caveats(samples: Samples) -> Iterator[Caveat]:
    """Yield a caveat if even and odd samples have two different times."""
    values, median_s = samples.values_s, samples.median_s
    if samples.size < ALTERNATING_FROM or correlation(values) > ALTERNATING_CORRELATION:
        return
    apart_s = abs(statistics.median(values[::2]) - statistics.median(values[1::2]))
    if apart_s > ALTERNATING_SHARE * median_s:
        yield Caveat(
            "alternating",
            f"the samples alternate between two times that differ by {format_time(apart_s)}, "
            f"{apart_s / median_s * 100:.1f} % of the median",
            "the median lies between the two times; compare the span, or use --timer graph",
        )


def _timer_caveats(record: Record, median_s: float) -> Iterator[Caveat]:
    """Yield caveats if the time that the timer adds is a large share of *median_s*."""
    if record.contract.timer == "events" and median_s < LEAST_EVENTS_S:
        yield Caveat(
            "uncalibrated",
            "the time includes launch cost and about 2 µs of the event pair itself",
            "choose --timer blocked where it is available",
        )
    floor_s = record.timer.floor_uncertainty_s
    if floor_s > FLOOR_SHARE * median_s:
        yield Caveat(
            "near-floor",
            f"the time that the timer itself adds is known to ± {floor_s * 1e9:.0f} ns only",
            "compare such short kernels within one run only",
        )


def odd_caveats(traces: Sequence[Trace]) -> Iterator[Caveat]:
    """Yield a caveat if many traced calls were discarded, as they ran other kernels than most, or
    if CUPTI reports that it lost records."""
    odd, lost = sum(trace.odd for trace in traces), sum(trace.lost for trace in traces)
    total = odd + sum(len(trace.busy_s) for trace in traces)
    if lost:
        yield Caveat(
            "lost-records",
            f"CUPTI lost {lost} records, and {odd} of {total} traced calls were discarded",
            "run it again; fewer kernels in a call need fewer records",
        )
    elif odd > ODD_SHARE * total:
        yield Caveat(
            "lost-records",
            f"{odd} of {total} traced calls recorded other kernels than most calls and were "
            "discarded",
            "let the call always launch the same kernels; if it does, CUPTI lost records: run it "
            "again",
        )


def recorder_caveats(trace: Trace) -> Iterator[Caveat]:
    """Yield a caveat if another profiler uses CUPTI, so that torch.profiler recorded *trace*."""
    if trace.doubt:
        yield Caveat(
            "other-profiler",
            f"torch.profiler recorded the kernels: {trace.doubt}",
            "end other profilers: both may miss records",
        )


def rest_caveats(
    rested: bool, rest: Rest, primary: Samples, contract: Contract
) -> Iterator[Caveat]:
    """Yield a caveat where samples began before the SM clock was that of a rested device."""
    size = primary.size
    if contract.regime == "sustained" or (rested and rest.unrecovered <= size / 10):
        return
    when = f"before {rest.unrecovered} of {size} samples" if rested else "after 2 s of rest"
    yield Caveat(
        "unrecovered",
        f"the SM clock had not recovered from earlier load {when}",
        "give a longer --gap, or choose --regime sustained",
    )


def launch_caveats(wall: Samples | None, busy: Samples, replays: bool = False) -> Iterator[Caveat]:
    """Yield a caveat where the host launches calls more slowly than the device executes them; a
    call that *replays* a CUDA graph is not advised to be one."""
    if wall is not None and wall.median_s > LAUNCH_BOUND * busy.median_s:
        yield Caveat(
            "launch-bound",
            f"a call in a loop takes {format_time(wall.median_s)}, and the device is busy for "
            f"{busy.median_s / wall.median_s * 100:.0f} % of it",
            "the call replays a CUDA graph: capture several calls in one, or make them larger"
            if replays
            else "CUDA graphs, fewer and larger kernels, or torch.compile save launches",
        )


def telemetry_caveats(telemetry: Telemetry | None) -> Iterator[Caveat]:
    """Yield the caveats about throttling and about other work on the device."""
    if telemetry is None:
        return
    if telemetry.throttle:
        yield Caveat(
            "throttled",
            f"the clock was held down: {', '.join(telemetry.throttle)}",
            "read the MFU at the observed clock; the samples are not corrected",
        )
    if others := telemetry.other_processes:
        yield Caveat(
            "shared",
            f"other processes had a context on the GPU: {others}",
            "end them and run again",
        )
    if telemetry.other_load is not None and telemetry.other_load > CONTENDED:
        yield Caveat(
            "contended",
            f"other processes kept {telemetry.other_load:.1f} processors busy",
            "end other work: threads that wait for a processor delay each other",
        )
