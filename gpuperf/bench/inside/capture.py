"""Time the callables that a script hands to a benchmark function, and write each as a record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from gpuperf.bench.key import command_of, key_of
from gpuperf.library.measure import Conditions, case_of, name_of, settings
from gpuperf.library.measurement import Measurement
from gpuperf.model.contract import Cache
from gpuperf.model.record import Record, Run
from gpuperf.model.text import clean
from gpuperf.model.workload import Value
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import FAILED, make_header, refuse_other_device

USUAL_CACHE: Cache = "cold"  # where a benchmark asks for none
LONGEST = 60  # characters of the value of an axis
LARGEST = 2**63
# torch's names of dtypes, and those of gpuperf.
DTYPES = {
    "torch.bfloat16": "bf16",
    "torch.float16": "fp16",
    "torch.float32": "fp32",
    "torch.float64": "fp64",
    "torch.int8": "int8",
}
IN_IDS = str.maketrans("[],=/", "();:|")  # the characters that separate the parts of a case's id


@dataclass(frozen=True)
class Place:
    """What a benchmark measures now: the names of a case, and its axes."""

    op: str
    implementation: str
    point: Mapping[str, Value]


@dataclass
class Capture:
    """Times callables for the script *file*, and writes their records into the run file *part*.

    The header is written with the first record, which knows the device. `records` has them all.
    The arguments *words* of the script are an axis of its cases. What the run `earlier` has is not
    timed again.
    """

    file: Path
    part: Path
    run: str
    precision: float
    budget_s: float
    words: tuple[str, ...] = ()
    earlier: Run | None = None
    records: list[Record] = field(default_factory=list)
    _places: list[Place] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)
    _writer: RunWriter | None = None

    def time(self, call: Callable[[], Any], cache: Cache | None = None) -> Record:
        """Return the record of *call*, whose status says why it has no time.

        Raises: what *call* raises; UsageError, CannotMeasure.
        """
        conditions = Conditions(precision=self.precision, budget_s=self.budget_s)
        if cache is not None:
            conditions["cache"] = cache
        place = self._distinct(self._place_of(call), cache)
        axes = {"arguments": _text(" ".join(self.words))} if self.words else {}
        case = case_of(place.op, place.implementation, {**place.point, **axes})
        known = self._known().get((case.id, cache or USUAL_CACHE))
        if known is not None:
            self.records.append(known)
            return known
        measurement = settings(conditions, [call]).measure(call, case, None)
        record = replace(measurement.record, run=self.run)
        self._write(record, measurement)
        return record

    def _known(self) -> Mapping[tuple[str, str], Record]:
        """Return the records of the earlier run that need no second measurement."""
        every = self.earlier.records if self.earlier else ()
        return {key_of(record): record for record in every if record.status not in FAILED}

    @contextmanager
    def at(self, op: str, implementation: object, point: Mapping[str, object]) -> Iterator[None]:
        """Name what is timed inside by *op*, *implementation* and *point*."""
        values = {_text(name): value_of(value) for name, value in point.items()}
        self._places.append(Place(op, str(value_of(implementation)), values))
        try:
            yield
        finally:
            self._places.pop()

    def close(self) -> None:
        """Close the run file, if there is one."""
        if self._writer is not None:
            self._writer.__exit__(None, None, None)

    def _place_of(self, call: Callable[[], Any]) -> Place:
        """Return the place of the benchmark that runs, or else the line of the script."""
        if self._places:
            return self._places[-1]
        line = _line_in(self.file, sys._getframe())
        return Place(self.file.stem, _text(name_of(call)), {"line": line} if line else {})

    def _distinct(self, place: Place, cache: Cache | None) -> Place:
        """Return *place*, with the number of the call where it was measured before."""
        key = f"{place} {cache}"
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return replace(place, point={**place.point, "call": count}) if count > 1 else place

    def _write(self, record: Record, measurement: Measurement) -> None:
        self.records.append(record)
        if self._writer is None:
            command = command_of(self.file.name, self.words)
            opened, peaks = measurement.opened, measurement.peaks
            about = (opened, peaks, measurement.peaks_reason, measurement.ceilings)
            header = make_header(self.run, command, (), (record.contract,), *about)
            if self.earlier is not None:
                refuse_other_device(self.earlier.header, header.fingerprint)
            self._writer = RunWriter(self.part, fresh=True)
            self._writer.header(header)
        self._writer.record(record)


def value_of(value: object) -> Value:
    """Return *value* as an axis has it: a whole number, or a text; dtypes have gpuperf's names."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST:
        return value
    text = str(value)
    return _text(DTYPES.get(text, text))


def _text(value: str) -> str:
    return clean(value)[:LONGEST].translate(IN_IDS) or "unnamed"


def _line_in(file: Path, frame: FrameType | None) -> int:
    """Return the line of *file* from which the code at *frame* was called; 0 if it was not."""
    while frame is not None:
        if frame.f_code.co_filename == str(file):
            return frame.f_lineno
        frame = frame.f_back
    return 0
