"""Show what each step of a workload gains, beside what the step before it predicts.

The implementations of such a workload each change one thing of the one before. A step's gain is the
time of a call to its caller, launches included, over that of the step before, and is predicted from
what that step measured: its device time changes like the least time of the work at the roofs, and
where its launches bind, their time like the number of launches. The larger of the two is the time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Record, Run
from gpuperf.model.timers import LAUNCH_BOUND
from gpuperf.model.times import TimeName
from gpuperf.roofline.speedup import Key, Speedup, key_of, same_case, speedups
from gpuperf.show.table import Column, Note, Table, fill
from gpuperf.units import format_interval, format_number, format_time

UNKNOWN = "–"


@dataclass(frozen=True)
class Step:
    """The gain of the implementation *name* over *before*, measured and predicted."""

    point: Mapping[str, object]
    name: str
    before: str
    gain: Speedup
    predicted: float | None
    because: str


def steps_tables(run: Run) -> list[Table]:
    """Make the table of the steps of *run*; none for a run without steps."""
    steps = list(steps_of(run))
    return [_table(steps)] if steps else []


def steps_of(run: Run) -> Iterator[Step]:
    """Yield the steps of each point, from one implementation that has a time to the next one."""
    peaks = (run.header.ceilings, run.header.peaks)
    for timed in _timed(run).values():
        names = [name for name in run.header.steps if name in timed and all(map(_ok, timed[name]))]
        for old, new in pairwise(names):
            before, after = timed[old], timed[new]
            gain = speedups([*before, *after], old).get(key_of(after[0]))
            if gain is not None:
                predicted, because = predict(before, after[0], peaks)
                yield Step(after[0].case.point, new, old, gain, predicted, because)


def predict(
    before: Sequence[Record], after: Record, peaks: Sequence[Peaks | None]
) -> tuple[float | None, str]:
    """Return the gain of *after* that the records *before*, of one step, predict, and why.

    *peaks* are measured roofs and those of the data sheet, or None.
    """
    old_s, new_s = least_s(before[0], peaks), least_s(after, peaks)
    whole_s, busy_s = _median_s(before, ""), _median_s(before, "busy")
    if not old_s or not new_s or not whole_s:
        return None, "the work of a step has no roof"
    change = new_s / old_s
    device_s, host_s = (busy_s or whole_s) * change, 0.0
    because = f"its least time is {format_number(change)} of that before"
    if busy_s and whole_s > LAUNCH_BOUND * busy_s:
        old, new = launches(before[0]), launches(after)
        host_s = whole_s * new / old if old and new else 0.0
        because = (
            f"{format_time(whole_s)} for {format_time(busy_s)} of kernels: launches bind, "
            f"{new} in place of {old}; {because}"
        )
    return whole_s / max(device_s, host_s), because


def least_s(record: Record, peaks: Sequence[Peaks | None]) -> float | None:
    """Return the seconds of the record's work by the first of *peaks* with each roof, or None.

    Compulsory bytes move while the FLOPs are computed; further ones move in kernels of their own.
    """
    work, cost = record.work, record.cost
    known = [each for each in peaks if each is not None]
    bandwidth = next((each.bandwidth for each in known if each.bandwidth), None)
    if work is None or cost is None or bandwidth is None:
        return None
    compute_s = 0.0
    for flops in work.flops:
        roof = next((roof for each in known if (roof := each.ceiling(flops))), None)
        if roof is None:
            return None
        compute_s += flops.count / roof.rate.value
    least = min(cost.dram_bytes, work.dram_bytes)
    apart_s = (work.dram_bytes - least) / bandwidth.value
    return max(compute_s, least / bandwidth.value) + apart_s


def launches(record: Record) -> int:
    """Return how often the host launches something in a call."""
    if record.work is not None and record.work.launches is not None:
        return record.work.launches
    return sum(kernel.count for kernel in record.kernels)


def _timed(run: Run) -> Mapping[Key, dict[str, list[Record]]]:
    """Return the records of each point by implementation, with the time to the caller where there
    is one as the time that counts."""
    points: dict[Key, dict[str, list[Record]]] = {}
    for record in run.records if run.header.steps else ():
        own = points.setdefault(same_case(record), {})
        timed = replace(record, primary="wall") if "wall" in record.times else record
        own.setdefault(record.case.implementation, []).append(timed)
    return points


def _ok(record: Record) -> bool:
    return record.status == "ok" and record.samples is not None


def _median_s(records: Sequence[Record], name: TimeName | Literal[""]) -> float | None:
    """Return the median seconds of *records*, of the time *name* or of that which counts."""
    samples = [record.times.get(name) if name else record.samples for record in records]
    values = [each.median_s for each in samples if each is not None]
    return statistics.median(values) if values else None


def _table(steps: Sequence[Step]) -> Table:
    varied = [name for name in steps[0].point if len({str(s.point.get(name)) for s in steps}) > 1]
    columns = (
        *(Column(name, identity=True) for name in varied),
        Column("step", left=True, identity=True),
        Column("gain", identity=True),
        Column("interval"),
        Column("predicted"),
        Column("ratio"),
        Column("because", left=True, wrap=30, keep=1),
    )
    rows = [(*(str(s.point.get(name)) for name in varied), *_cells(s)) for s in steps]
    return Table(
        fill(columns, rows),
        title="gain of each step for the caller, launches included",
        notes=tuple(_orders(steps, varied)),
        rows=[_row(step) for step in steps],
    )


def _cells(step: Step) -> tuple[str, ...]:
    gain, predicted = step.gain, step.predicted
    ends = (gain.low, gain.high)
    return (
        f"{step.before} → {step.name}",
        f"{format_number(gain.value)}×",
        format_interval(gain.value, *ends) if ends[0] and ends[1] else UNKNOWN,  # type: ignore[arg-type]
        f"{format_number(predicted)}×" if predicted else UNKNOWN,
        format_number(gain.value / predicted) if predicted else UNKNOWN,
        step.because,
    )


def _row(step: Step) -> dict[str, object]:
    return {
        "point": dict(step.point),
        "step": step.name,
        "before": step.before,
        "gain": step.gain.value,
        "low": step.gain.low,
        "high": step.gain.high,
        "predicted": step.predicted,
        "because": step.because,
    }


def _orders(steps: Sequence[Step], varied: Sequence[str]) -> Iterator[Note]:
    """Yield for each point its steps from the largest gain to the least, and the gain of all."""
    points: dict[tuple[str, ...], list[Step]] = {}
    for step in steps:
        points.setdefault(tuple(str(step.point.get(name)) for name in varied), []).append(step)
    for values, own in points.items():
        at = ", ".join(f"{name} {value}" for name, value in zip(varied, values, strict=True))
        ordered = sorted(own, key=lambda step: -step.gain.value)
        gains = ", ".join(f"{step.name} {format_number(step.gain.value)}×" for step in ordered)
        product = format_number(math.prod(step.gain.value for step in own))
        yield f"Best first{', ' + at if at else ''}", f"{gains}; all together {product}×"
