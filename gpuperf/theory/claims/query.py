"""Read the run files of a folder, and answer the queries of claims from their records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

from gpuperf.errors import RunFileError, UsageError
from gpuperf.model.record import Header, Record
from gpuperf.run.store import NAMES, read_runs
from gpuperf.theory.claims.claim import Claim, Figure, Query, compare

MOST_FILES = 2000
HINT = "`gpuperf compare` and `gpuperf roofline` write run files"


@dataclass(frozen=True)
class Row:
    """A record that was measured on a GPU, with the header of its run and its file."""

    record: Record
    header: Header
    file: str

    @property
    def axes(self) -> Mapping[str, Any]:
        """The axes and options of the case."""
        return {**self.record.case.point, **self.record.case.options}

    @property
    def size(self) -> tuple[int, str]:
        """The size of the case and its date, by which the largest and newest record is chosen."""
        cost = self.record.cost
        return (cost.flop_count + cost.dram_bytes if cost else 0), self.record.started


def read_folder(path: Path) -> tuple[list[Row], list[str]]:
    """Read every run file in the folder *path*, or the run file *path*: the records of GPUs, and a
    sentence for each file that is none. Raises: UsageError if there is no run file."""
    try:
        files = [path] if path.is_file() else sorted(f for f in path.iterdir() if _named(f))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"--run {path} cannot be read: {reason}", HINT) from None
    if not files or len(files) > MOST_FILES:
        count = f"over {MOST_FILES:,}" if files else "no"
        raise UsageError(f"{path} has {count} run files", HINT)
    rows, doubts = [], []
    for file in files:
        try:
            for run in read_runs(file):
                rows += [Row(record, run.header, file.name) for record in run.records]
        except RunFileError as error:
            doubts.append(str(error))
    if len(doubts) == len(files):
        raise RunFileError(f"{path} has no run file that can be read: {doubts[0]}", HINT)
    return [row for row in rows if _of_gpu(row)], doubts


def _named(file: Path) -> bool:
    return file.name.endswith(NAMES)


def _of_gpu(row: Row) -> bool:
    device = row.header.device
    return row.record.status == "ok" and device is not None and device.kind != "cpu"


def _time(row: Row) -> float | None:
    samples = row.record.samples
    return median(samples.values_s) if samples and samples.values_s else None


def _dram(row: Row) -> float | None:
    counters = row.record.counters
    names = ("dram_read_bytes", "dram_written_bytes")
    return sum(counters[name] for name in names) if set(names) <= counters.keys() else None


def _written(row: Row) -> float | None:
    cost = row.record.cost
    return sum(b.written for b in cost.bytes) if cost else None


def _flops(row: Row) -> float | None:
    return row.record.cost.flop_count if row.record.cost else None


def _passes(row: Row) -> float | None:
    return _over(_dram(row), _written(row))


def _rate(row: Row) -> float | None:
    return _over(_flops(row), _time(row))


def _kernels(row: Row) -> float | None:
    return sum(kernel.count for kernel in row.record.kernels) or None


def _held(row: Row) -> float | None:
    return row.record.memory.call_bytes if row.record.memory else None


def _peak_share(row: Row) -> float | None:
    cost, peaks = row.record.cost, row.header.peaks
    if not cost or not peaks or len(cost.flops) != 1:
        return None
    ceiling = peaks.ceiling(cost.flops[0])
    return _over(_rate(row), ceiling.rate.value if ceiling else None)


def _bandwidth(row: Row) -> float | None:
    cost = row.record.cost
    return _over(sum(b.read + b.written for b in cost.bytes) if cost else None, _time(row))


# What a query may ask of a record; None if the record does not have it.
QUANTITIES: Mapping[str, Callable[[Row], float | None]] = {
    "time_s": _time,
    "flop_per_s": _rate,
    "byte_per_s": _bandwidth,
    "result_byte_per_s": lambda row: _over(_written(row), _time(row)),
    "dram_bytes": _dram,
    "passes": _passes,  # DRAM bytes over the bytes of the result
    "kernels": _kernels,
    "held_bytes": _held,  # the most that a call allocated
    "peak_share": _peak_share,
    "empty_call_s": lambda row: row.record.timer.empty_call_s or None,
}


def _over(above: float | None, below: float | None) -> float | None:
    """Return above / below, if both are known, and the result is a positive number."""
    if above is None or not below:
        return None
    value = above / below
    return value if math.isfinite(value) and value > 0 else None


def answer(claim: Claim, rows: Sequence[Row]) -> tuple[Figure, ...]:
    """Return a figure for each query of *claim* that a record among *rows* answers."""
    return tuple(f for query in claim.queries for f in _figure(claim, query, rows))


def _figure(claim: Claim, query: Query, rows: Sequence[Row]) -> Iterator[Figure]:
    fitting = [row for row in rows if _fits(row, query)]
    for row in sorted(fitting, key=lambda each: each.size, reverse=True):
        value = _value(query, row, rows)
        if value is not None and math.isfinite(value):
            source = f"{row.header.device.name if row.header.device else ''}, {row.file}, "
            label = query.label or query.implementation
            unit = query.unit or ("" if query.says else claim.unit)
            source += row.record.case.id
            yield compare(claim, label, value, query.says, unit, source)
            return


def _fits(row: Row, query: Query) -> bool:
    case = row.record.case
    if (case.op, case.implementation) != (query.op, query.implementation):
        return False
    axes = row.axes
    same = all(axes.get(axis) == value for axis, value in query.at.items())
    return same and query.study in ("", row.header.study)


def _value(query: Query, row: Row, rows: Sequence[Row]) -> float | None:
    quantity = QUANTITIES[query.reading]
    if query.along:
        return _slope(query, row, rows)
    if not query.over:
        value = quantity(row)
        return value if value is not None and value > 0 else None
    others = (_over(quantity(row), quantity(other)) for other in _partners(query.over, row, rows))
    return next((value for value in others if value is not None), None)


def _partners(change: Mapping[str, Any], row: Row, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the records of the same run that differ from *row* by *change* alone."""
    record = row.record
    wanted = {"implementation": record.case.implementation, **row.axes, **change}
    for other in rows:
        if (other.record.run, other.record.case.op) != (record.run, record.case.op):
            continue
        its = {"implementation": other.record.case.implementation, **other.axes}
        if its == wanted and other.record.contract == record.contract:
            yield other


def _slope(query: Query, row: Row, rows: Sequence[Row]) -> float | None:
    """Return the slope of the quantity along an axis, both logarithmic, in the run of *row*."""
    quantity, axis = QUANTITIES[query.reading], query.along
    points = {}
    for size in {other.axes.get(axis) for other in rows if other.record.run == row.record.run}:
        for other in _partners({axis: size}, row, rows):
            value = quantity(other)
            if isinstance(size, int) and size > 0 and value is not None and value > 0:
                points[math.log(size)] = math.log(value)
    if len(points) < 2:
        return None
    return linear_regression(list(points), list(points.values())).slope
