"""Round what was measured to the digits that mean something.

The difference of two readings has 16 digits, most of which are the error of the subtraction: a
kernel of 2.304 µs would be written as 2.303999999999848e-6. Samples scatter by a thousandth or more
and no comparison is finer than a ten-thousandth, so six digits are enough, and a run file has half
the size. A median moves by less than 1e-4 of itself, where values that were kept apart by such an
error now are of one tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuperf.model.record import Record
from gpuperf.model.samples import Samples
from gpuperf.model.times import TimeName

TIME_DIGITS, CLOCK_DIGITS = 6, 5  # significant ones; 5 of a clock near 2 GHz are 0.1 MHz


def rounded(record: Record) -> Record:
    """Return *record* with its samples, its clocks and its other times rounded."""
    return replace(
        record,
        times=_times(record.times),
        ranks=tuple(replace(rank, times=_times(rank.times)) for rank in record.ranks),
        kernels=tuple(replace(k, time_s=_time(k.time_s)) for k in record.kernels),
        build_s=_time(record.build_s),
        first_call_s=_time(record.first_call_s),
        capture_s=_time(record.capture_s),
    )


def _times(times: Mapping[TimeName, Samples]) -> dict[TimeName, Samples]:
    return {name: _samples(samples) for name, samples in times.items()}


def _samples(samples: Samples) -> Samples:
    return replace(
        samples,
        values_s=tuple(significant(value, TIME_DIGITS) for value in samples.values_s),
        sm_clock_hz=tuple(
            None if hz is None else significant(hz, CLOCK_DIGITS) for hz in samples.sm_clock_hz
        ),
    )


def _time(value_s: float | None) -> float | None:
    return None if value_s is None else significant(value_s, TIME_DIGITS)


def significant(value: float, digits: int) -> float:
    """Return *value* with *digits* significant decimal digits."""
    return float(f"{value:.{digits - 1}e}")
