"""Read result files of other benchmarks (pytest-benchmark, NVBench) as records.

A result file has times and no costs. Its contract has the data `own`, and the fingerprint names the
tool among its hard facts, so that the gate compares the file only with files of the same tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpuperf.errors import UsageError
from gpuperf.files import open_regular, read_regular
from gpuperf.model.codec import decode
from gpuperf.model.contract import Contract, DeviceFacts, Fingerprint
from gpuperf.model.record import Record
from gpuperf.model.text import clean, clean_json
from gpuperf.model.workload import Case, Value

NO_INDEX = "--device-index chooses a device of an NVBench file: leave it out"
LARGEST_FILE = 64 << 20  # bytes; 10,000 benchmarks of 200 rounds have about 40 MB
MOST_RECORDS = 10_000
MOST_SAMPLES = 2_000_000  # in a file
LONGEST_NAME = 200  # characters of a name or a value
MOST_AXES = 100
HEAD = 1 << 16  # bytes
# A result file begins with one of these keys; a trace begins with others.
FIRST_KEYS = "machine_info commit_info benchmarks datetime version meta devices".split()  # noqa: SIM905
BEGINNING = re.compile(rb'\s*\{\s*"(' + "|".join(FIRST_KEYS).encode() + rb')"\s*:')
IN_IDS = str.maketrans("[]/", "()|")  # the characters that separate the parts of a case's id

T = TypeVar("T")


@dataclass(frozen=True)
class Results:
    """The records of a result file, and on what they were taken; `left_out` says how many
    benchmarks have no times, and why."""

    tool: str
    device: DeviceFacts
    fingerprint: Fingerprint
    contract: Contract
    records: tuple[Record, ...]
    created: str = ""
    left_out: str = ""


def begins_as_results(path: Path) -> bool:
    """Whether the file *path* begins as the JSON of pytest-benchmark or NVBench does."""
    try:
        with open_regular(path) as file:
            return BEGINNING.match(file.read(HEAD)) is not None
    except OSError:
        return False  # the reader of traces says what is wrong


def read_results(path: Path, run: str, device_index: int | None = None) -> Results:
    """Read the result file *path* of pytest-benchmark or NVBench as records of *run*; of a file of
    NVBench those of the device *device_index*.

    Raises: UsageError for a file that is neither, is too large, or has impossible values.
    """
    from gpuperf.importing import nvbench, pytest_benchmark

    try:
        data = clean_json(read_regular(path, LARGEST_FILE))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "export fewer") from None
    states = b'"states"' in data and b'"stats"' not in data
    try:
        if states:
            return nvbench.read(data, path, run, device_index)
        if device_index is not None:
            raise UsageError(f"{path} is no file of NVBench", NO_INDEX)
        return pytest_benchmark.read(data, path, run)
    except (ValueError, OverflowError) as error:
        tool = "NVBench" if states else "pytest-benchmark"
        raise UsageError(
            f"{path} is not a whole result file of {tool}: {str(error)[:200]}",
            "write it again with nvbench --json FILE, or pytest --benchmark-json FILE",
        ) from None


def parse(data: bytes, kind: type[T]) -> T:
    """Decode *data* as a *kind*. Raises: ValueError."""
    return decode(data, kind)


def refuse_many(path: Path, count: int, noun: str, most: int) -> None:
    """Refuse over *most* of what *noun* names in a file. Raises: UsageError."""
    if count > most:
        raise UsageError(f"{path} has over {most:,} {noun}", "split the file")


def refuse_own(path: Path, names: object) -> None:
    """Refuse a file in which *names* has gpuperf: its timer and caches are others than the tool's.

    Raises: UsageError.
    """
    if isinstance(names, dict) and "gpuperf" in names:
        raise UsageError(
            f"{path} was written by gpuperf, and lacks most of what the run file has",
            "gpuperf show RUN prints the run file",
        )


def case_of(op: str, implementation: str, point: Mapping[str, object], tool: str) -> Case:
    """Make a case of foreign names: its parts are cleaned, cut, and free of the id's brackets."""
    axes = list(point.items())[:MOST_AXES]
    return Case(
        _part(op) or "unnamed",
        clean(implementation)[:LONGEST_NAME].translate(str.maketrans("[]", "()")),
        {_axis(name): _value(value) for name, value in axes},
        source=tool,
    )


def _part(text: str) -> str:
    return clean(text)[:LONGEST_NAME].translate(IN_IDS)


def _axis(name: str) -> str:
    return _part(name).replace("=", ":").replace(",", ";") or "unnamed"


def _value(value: object) -> Value:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole else _axis(str(value))  # type: ignore[return-value]


def distinct(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return *records* with an axis `occurrence` where several have the same case."""
    seen: dict[str, int] = {}
    result = []
    for record in records:
        case = record.case
        count = seen[case.id] = seen.get(case.id, 0) + 1
        if count > 1:
            case = replace(case, point={**case.point, "occurrence": count})
        result.append(replace(record, case=case))
    return tuple(result)


def positive(values: Sequence[float], what: str) -> tuple[float, ...]:
    """Return *values* if all are times above zero. Raises: ValueError."""
    wrong = next((value for value in values if not 0 < value < 1e9), None)
    if wrong is not None:
        raise ValueError(f"{what[:LONGEST_NAME]} has the time {wrong:g} s")
    return tuple(values)
