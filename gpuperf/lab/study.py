"""Bring the records of an experiment beside its predictions: x, y with its interval, and doubts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuperf.errors import RunFileError
from gpuperf.lab.laws import Datum
from gpuperf.model.experiment import (
    COMPARED,
    COUNTED,
    IN_CYCLES,
    READING,
    Expected,
    ExperimentDescription,
    Prediction,
    Predictions,
)
from gpuperf.model.record import NO_COUNTERS, Record, Run
from gpuperf.model.workload import Case, Value
from gpuperf.roofline.speedup import center

Agreement = Literal["agrees", "differs", "refutes", "imprecise", "baseline", ""]
SPILLED = "local_bytes"  # reading of the local memory that a thread uses
FASTER = frozenset({"bytes_per_s", "flop_per_s"})
RETRIED = ("skipped", "oom")  # statuses that leave a point out without a doubt


@dataclass(frozen=True)
class Measured:
    """A measured y with its 95 % interval, over the processes where there are several."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class LabPoint:
    """A point of an experiment: its prediction and what was measured.

    `reason` says why nothing was measured, and `doubt` why the measurement cannot judge. `axes` are
    those of its case.
    """

    prediction: Prediction
    measured: Measured | None = None
    reason: str = ""
    doubt: str = ""
    axes: Mapping[str, Value] = field(default_factory=dict)

    @property
    def expected(self) -> Expected | None:
        """What was predicted, if anything was."""
        return self.prediction.expected

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None where one is missing or nothing was predicted."""
        if self.measured is None or self.expected is None or self.expected.value == 0:
            return None
        return self.measured.value / self.expected.value

    @property
    def agreement(self) -> Agreement:
        """How the interval of the measurement lies to the band of the prediction.

        It `agrees` if they meet, and is `imprecise` if it is wider than the band. It `refutes` the
        prediction if it is outside of a band of twice the width, and otherwise only `differs`. A
        point that others are compared with is a `baseline`: itself it can only agree.
        """
        measured, expected = self.measured, self.expected
        if measured is None or expected is None:
            return ""
        if self.prediction.baseline == self.prediction.case:
            return "baseline"
        if measured.high - measured.low > expected.high - expected.low:
            return "imprecise"
        if measured.low <= expected.high and measured.high >= expected.low:
            return "agrees"
        far_low = 2 * expected.low - expected.value
        far_high = 2 * expected.high - expected.value
        return "refutes" if measured.high < far_low or measured.low > far_high else "differs"


@dataclass(frozen=True)
class Study:
    """The points of an experiment in the order of its plan, and the points of its controls."""

    experiment: ExperimentDescription
    points: tuple[LabPoint, ...]
    controls: tuple[LabPoint, ...]

    @property
    def series(self) -> Mapping[str, tuple[LabPoint, ...]]:
        """The points of each line of the chart, in the order of x."""
        names = dict.fromkeys(point.prediction.series for point in self.points)
        return {
            name: tuple(
                sorted(
                    (p for p in self.points if p.prediction.series == name),
                    key=lambda p: p.prediction.x,
                )
            )
            for name in names
        }


def study_run(run: Run) -> Study:
    """Return the study of a run of an experiment. Raises: RunFileError for another run."""
    expected = run.header.expected
    if expected is None:
        raise RunFileError(
            f"run {run.header.run} has no predictions", "`gpuperf lab NAME` measures an experiment"
        )
    return study(expected, run.records, run.header.plan)


def study(expected: Predictions, records: Sequence[Record], plan: Sequence[Case] = ()) -> Study:
    """Return the study of *records*, which may come from several processes, of cases of *plan*."""
    axes = {case.id: {**case.point, **case.options} for case in plan}
    by_case: dict[str, list[Record]] = {}
    for record in records:
        by_case.setdefault(record.case.id, []).append(record)
    points = [
        replace(_point(p, by_case, expected.experiment.y), axes=axes.get(p.case, {}))
        for p in expected.points
    ]
    return Study(
        expected.experiment,
        tuple(point for point in points if not point.prediction.control),
        tuple(point for point in points if point.prediction.control),
    )


def data_of(points: Sequence[LabPoint]) -> tuple[list[Datum], list[Datum]]:
    """Return the measured and the predicted points of one series that have both."""
    measured, predicted = [], []
    for point in points:
        own, expected, x = point.measured, point.expected, point.prediction.x
        if own is not None and expected is not None and own.value > 0 and expected.value > 0:
            measured.append(Datum(x, own.value, own.low, own.high, expected.value))
            predicted.append(Datum(x, *[expected.value] * 4))
    return measured, predicted


def _point(prediction: Prediction, by_case: Mapping[str, list[Record]], y: str) -> LabPoint:
    records = by_case.get(prediction.case, [])
    failed = [record for record in records if record.status != "ok"]
    if not records:
        return LabPoint(prediction, reason="not measured")
    if failed:
        status = failed[0].status
        reason = f"{status}: {failed[0].reason}" if failed[0].reason else status
        return LabPoint(prediction, reason=reason, doubt="" if status in RETRIED else reason)
    bases = by_case.get(prediction.baseline, []) if y in COMPARED else []
    if y in COMPARED and not [r for r in bases if r.status == "ok"]:
        return LabPoint(prediction, reason="the case it is compared with has no time")
    try:
        measured = _measured(prediction, records, bases, y)
    except _Missing as missing:
        return LabPoint(prediction, reason=str(missing), doubt=str(missing))
    return LabPoint(prediction, measured, doubt=_doubt([*records, *bases], y))


class _Missing(Exception):
    """A record lacks what y is computed from."""


def _measured(
    prediction: Prediction, records: Sequence[Record], bases: Sequence[Record], y: str
) -> Measured:
    steps = prediction.steps
    if y in COUNTED:
        return _between([_counted(record, y) for record in records if record.counters], steps)
    if y.startswith(READING):
        return _between([_reading(record, y.removeprefix(READING)) for record in records], steps)
    if y == "call_bytes":
        sizes = [record.memory.call_bytes for record in records if record.memory]
        if not sizes or None in sizes:
            raise _Missing("the memory of a call was not recorded")
        return _between([(float(size or 0), 0.0) for size in sizes], steps)
    time = _time(records, cycles=y in IN_CYCLES)
    if y in COMPARED and prediction.baseline == prediction.case:
        return Measured(1.0, 1.0, 1.0)
    if y in COMPARED:
        base = _time([record for record in bases if record.status == "ok"], y in IN_CYCLES)
        over, under = (base, time) if y.endswith("speedup") else (time, base)
        return _ratio(over, under)
    if y in FASTER:
        return Measured(steps / time.value, steps / time.high, steps / max(time.low, 1e-30))
    return Measured(time.value / steps, time.low / steps, time.high / steps)


def _time(records: Sequence[Record], cycles: bool = False) -> Measured:
    """Return the time of a call in seconds, or in cycles at the clock of its samples."""
    values: list[tuple[float, float, float]] = []
    for record in records:
        samples = record.samples
        if samples is None or samples.median_s <= 0:
            raise _Missing("the call has no time")
        clock = samples.clock_hz if cycles else 1.0
        if clock is None:
            raise _Missing("the SM clock was not read, so there are no cycles")
        low, high = samples.interval_s
        values.append((samples.median_s * clock, low * clock, high * clock))
    if len(values) == 1:
        return Measured(*values[0])
    return Measured(*center([value for value, _, _ in values]))


def _ratio(over: Measured, under: Measured) -> Measured:
    """Return the ratio of two times: the halves of their intervals add as squares."""
    value = over.value / under.value
    low = math.hypot(1 - over.low / over.value, under.high / under.value - 1)
    high = math.hypot(over.high / over.value - 1, 1 - under.low / under.value)
    return Measured(value, value * max(0.0, 1 - low), value * (1 + high))


def _counted(record: Record, y: str) -> tuple[float, float]:
    """Return the count and its uncertainty."""
    counters = record.counters
    names = ("dram_read_bytes", "dram_written_bytes") if y == "dram_bytes" else (y,)
    if not all(name in counters for name in names):
        raise _Missing(f"the hardware counter of {y} was not read")
    doubt = counters.get("dram_uncertainty_bytes", 0.0) if y.startswith("dram") else 0.0
    return sum(counters[name] for name in names), doubt


def _reading(record: Record, name: str) -> tuple[float, float]:
    if name not in record.readings:
        raise _Missing(f"the call has no reading {name!r}")
    return record.readings[name], 0.0


def _between(values: Sequence[tuple[float, float]], steps: float) -> Measured:
    if not values:
        raise _Missing("no hardware counters were read")
    middle = statistics.median(value for value, _ in values)
    low = min(value - doubt for value, doubt in values)
    high = max(value + doubt for value, doubt in values)
    return Measured(middle / steps, low / steps, high / steps)


def _doubt(records: Sequence[Record], y: str) -> str:
    """Return why *records* cannot judge a prediction of *y*; empty if they can."""
    timed = not (y in COUNTED | IN_CYCLES or y.startswith(READING) or y == "call_bytes")
    tests: tuple[tuple[Callable[[Record], bool], str], ...] = (
        (lambda r: r.readings.get(SPILLED, 0) > 0, "the kernel spills registers to memory"),
        (
            lambda r: timed and _has(r, "throttled") and not _fast(r),
            "the clock was held down while it was timed",
        ),
        (lambda r: y in COUNTED and _has(r, NO_COUNTERS), "hardware counters are missing"),
    )
    return next((text for test, text in tests if any(map(test, records))), "")


def _fast(record: Record) -> bool:
    """Return whether the clock was read within the samples and was not slow there.

    The driver's flag, which is read once, may be that of the work before them.
    """
    samples = record.samples
    read = samples is not None and samples.clock_hz is not None
    return read and not _has(record, "slowed")


def _has(record: Record, kind: str) -> bool:
    return any(caveat.kind == kind for caveat in record.caveats)
