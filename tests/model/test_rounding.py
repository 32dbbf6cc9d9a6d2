"""Samples are rounded to what a clock resolves, and nothing else of a record changes."""

from __future__ import annotations

from dataclasses import replace

from measured import run_file

from gpuperf.model.rounding import rounded
from gpuperf.run.store import read_run


def test_the_error_of_a_subtraction_is_not_written() -> None:
    record = read_run(run_file("h200-noise")).records[3]
    subtracted = (2.2719999999997777e-6, 2.368999999999462e-6, 2.240000000000575e-6)
    samples = record.times["busy"]
    values = (*subtracted, *samples.values_s[3:])
    times = {**record.times, "busy": replace(samples, values_s=values)}
    busy = rounded(replace(record, times=times)).times["busy"]
    assert busy.values_s[:3] == (2.272e-6, 2.369e-6, 2.24e-6)
    assert busy.sm_clock_hz[0] == 1871500000.0


def test_rounding_moves_no_median_by_a_ten_thousandth_and_is_done_once() -> None:
    for record in read_run(run_file("h200-timing-check")).records[::4]:
        short = rounded(record)
        assert rounded(short) == short
        for name, samples in record.times.items():
            moved_s = abs(short.times[name].median_s - samples.median_s)
            assert moved_s <= 1e-4 * samples.median_s
            assert short.times[name].size == samples.size
        assert replace(short, times=record.times, kernels=record.kernels) == replace(
            record, build_s=short.build_s, first_call_s=short.first_call_s
        )
