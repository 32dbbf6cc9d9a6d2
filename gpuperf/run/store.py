"""Read run files, even damaged ones.

A run is one JSONL file: a header, then a line for each record (`runfile.py` writes it), plain,
compressed by gzip, or inside an HTML page (`embedded.py`). Half-written lines are skipped and
reported; a header that follows a broken line without a newline is recovered.
"""

from __future__ import annotations

import contextlib
import gc
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from gpuperf.errors import RunFileError
from gpuperf.model.codec import decode
from gpuperf.model.contract import Contract
from gpuperf.model.older import upgrade_header, upgrade_record
from gpuperf.model.record import SCHEMA, Header, Record, Run
from gpuperf.model.samples import LONGEST_S, SHORTEST_S
from gpuperf.model.summary import RecordSummary, RunSummary, summarize
from gpuperf.model.text import clean_json
from gpuperf.model.workload import Case
from gpuperf.peaks.physics import check_physics
from gpuperf.run.embedded import is_page, open_embedded
from gpuperf.run.runfile import GZIP


class _AnyRecord(Protocol):
    @property
    def run(self) -> str: ...

    @property
    def case(self) -> Case: ...

    @property
    def contract(self) -> Contract: ...

    @property
    def pass_index(self) -> int: ...

    @property
    def rank(self) -> int: ...


K = TypeVar("K", bound=_AnyRecord)
R = TypeVar("R", Run, RunSummary)

NAMES = (".jsonl", ".jsonl.gz")  # how the name of a run file ends
CHECKED = 9  # the first schema whose records were checked by physics before they were written
LONGEST_LINE = 64 << 20  # bytes; a header of 10,000 cases has 3 MB
MOST_EXPANDED = 256 << 20  # bytes of text in a compressed file
MOST_RECORDS = 200_000  # 10,000 cases in 20 processes
MOST_BROKEN = 10_000  # lines
HEADER_MARK = b'"type":"header"'
OWN_END = b',"schema":%d,"type":"record"}' % SCHEMA  # of the lines that this version writes


class _Peek(msgspec.Struct):
    type: str = ""
    schema: int = 0


def read_run(path: str | Path) -> Run:
    """Read the run in *path*. Raises: RunFileError unless it contains exactly one."""
    return _only(read_runs(path), path)


def read_text(path: str | Path) -> bytes:
    """Return the text of the run file *path*, decompressed, with the same bounds as its lines.

    Raises: RunFileError.
    """
    text, last = bytearray(), 0
    for number, line in _lines(Path(path)):  # empty lines are kept, as they count
        text += b"\n" * (number - last - 1) + line.rstrip(b"\n") + b"\n"
        last = number
    return bytes(text)


def read_summary(path: str | Path) -> RunSummary:
    """Read the summaries of the records in *path*. Raises: RunFileError."""
    summaries = [
        RunSummary(header, records, problems, lambda: read_run(path))
        for header, records, problems in _read(Path(path), RecordSummary)
    ]
    summary = _only(summaries, path)
    return summary if summary.header.schema >= CHECKED else summarize(read_run(path))


def read_runs(path: str | Path) -> tuple[Run, ...]:
    """Read every run in *path*, in the order of the headers; the last record of each key counts.

    Raises: RunFileError for a file that cannot be read, has no run, or is from a newer gpuperf.
    """
    return tuple(
        Run(header, _upgraded(header, records), problems)
        for header, records, problems in _read(Path(path), Record)
    )


def _upgraded(header: Header, records: tuple[Record, ...]) -> tuple[Record, ...]:
    """Add later fields to records of older schemas, and check them by physics."""
    return tuple(
        check_physics(r, header.peaks, header.ceilings) if r.schema < CHECKED else r
        for r in map(upgrade_record, records)
    )


def _only(runs: Sequence[R], path: str | Path) -> R:
    if len(runs) > 1:
        names = ", ".join(run.header.run for run in runs[:5])
        raise RunFileError(f"{path} holds {len(runs)} runs: {names}", "split the file by runs")
    return runs[0]


def _read(path: Path, kind: type[K]) -> list[tuple[Header, tuple[K, ...], tuple[str, ...]]]:
    """Read each run in *path*: its header, its records as *kind*, and the unreadable lines."""
    headers: dict[str, Header] = {}
    records: dict[str, dict[object, K]] = {}
    problems: list[str] = []
    last: K | None = None
    marks: dict[Contract, int] = {}
    with _without_collector():
        for number, line in _lines(path):
            try:
                value: Header | K = _parse(line, path, kind)
            except ValueError as error:
                problems.append(f"line {number} is not a whole record ({str(error)[:120]})")
                _refuse_broken(problems, path)
                recovered = _recovered_header(line, path)
                if recovered is not None:
                    headers.setdefault(recovered.run, recovered)
                continue
            if isinstance(value, Header):
                headers.setdefault(value.run, value)
                continue
            _share(value, last)
            if last is None or value.contract is not last.contract:  # hashing it is slow
                mark = marks.setdefault(value.contract, len(marks))
            last = value
            key = (value.case.id, mark, value.pass_index, value.rank)
            records.setdefault(value.run, {})[key] = value
    if not headers:
        raise RunFileError(f"{path} is not a run of gpuperf", "`gpuperf roofline` writes run files")
    strays = sum(len(by_key) for run, by_key in records.items() if run not in headers)
    if strays:
        problems.append(f"{strays} records belong to runs whose header is missing")
    return [
        (header, tuple(records.get(run, {}).values()), tuple(problems))
        for run, header in headers.items()
    ]


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Stop the garbage collector: run files have no cycles, and it doubles their reading time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _share(record: _AnyRecord, last: _AnyRecord | None) -> None:
    """Replace the contract and the fingerprint of *record* by equal ones of the *last* record.

    Ten thousand records then share one object.
    """
    write = object.__setattr__ if isinstance(record, Record) else setattr  # a Record is frozen
    for name in ("contract", "fingerprint"):
        if last is not None and getattr(record, name) == getattr(last, name):
            write(record, name, getattr(last, name))


def _refuse_broken(problems: list[str], path: Path) -> None:
    if len(problems) > MOST_BROKEN:
        raise RunFileError(
            f"{path} has over {MOST_BROKEN:,} lines that are not records: the first, {problems[0]}",
            "gpuperf did not write this file",
        )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the non-empty lines with their numbers. Raises: RunFileError."""
    if path.exists() and not path.is_file():
        hint = "`gpuperf roofline` writes run files"
        if (path / "verdict.json").exists():
            hint = "give --html FILE for its page, or one of the run files in it"
        raise RunFileError(f"{path} is not a file", hint)
    try:
        with path.open("rb") as file:
            text = _text(file, path)
            _refuse_long(text, path)  # before time is spent on parsing
            yield from _bounded_lines(text, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RunFileError(
            f"{path} is broken as a gzip file: {error}", "copy it again, or compress it again"
        ) from None
    except OSError as error:
        raise RunFileError(
            f"{path} cannot be read: {error.strerror}", "`gpuperf roofline` writes run files"
        ) from None


def _text(file: io.BufferedReader, path: Path) -> io.BufferedIOBase:
    """Return *file*, decompressed if it begins as gzip does, or the run inside it if it begins as
    an HTML page does, whatever its name is. Raises: RunFileError for a page without a run."""
    if is_page(file):
        return open_embedded(file, path)
    packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if packed else file


def _refuse_long(file: io.BufferedIOBase, path: Path) -> None:
    lines = unbroken = size = 0
    while chunk := file.read(1 << 20):
        size += len(chunk)
        if size > MOST_EXPANDED and isinstance(file, gzip.GzipFile):
            raise RunFileError(
                f"{path} expands to over {MOST_EXPANDED >> 20} MiB", "decompress and split it"
            )
        lines += chunk.count(b"\n")
        if lines > MOST_RECORDS:
            raise RunFileError(f"{path} has over {MOST_RECORDS:,} lines", "split it")
        last = chunk.rfind(b"\n")
        unbroken = unbroken + len(chunk) if last == -1 else len(chunk) - last - 1
        if unbroken > LONGEST_LINE:
            raise _endless(lines + 1, path)
    file.seek(0)


def _endless(number: int, path: Path) -> RunFileError:
    return RunFileError(
        f"line {number} of {path} is over {LONGEST_LINE >> 20} MiB",
        "gpuperf did not write this file",
    )


def _bounded_lines(file: io.BufferedIOBase, path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise _endless(number, path)
        if line.strip():
            yield number, line


def _parse(line: bytes, path: Path, kind: type[K]) -> Header | K:
    """Decode *line*. Raises: ValueError for a broken one, RunFileError for a newer schema."""
    line = clean_json(line)
    if line.endswith(OWN_END, 0, len(line.rstrip())):  # the brace closes the whole record
        return _with_plausible_times(decode(line, kind))
    peek = decode(line, _Peek)
    if peek.schema > SCHEMA:
        raise RunFileError(
            f"{path} has schema {peek.schema}; this gpuperf reads up to {SCHEMA}", "upgrade gpuperf"
        )
    if peek.type == "header":
        return upgrade_header(decode(line, Header))
    if peek.type == "record":
        return _with_plausible_times(decode(line, kind))
    raise ValueError("neither a header nor a record")


def _with_plausible_times(record: K) -> K:
    """Return *record*. Raises: ValueError where its times are no times of a call, as a sum of them
    would overflow, and rates by them would have hundreds of digits."""
    each: list[Sequence[float]] = []
    if isinstance(record, Record):
        each = [samples.values_s for samples in record.times.values()]
    elif isinstance(record, RecordSummary) and record.samples is not None:
        each = [record.samples.values_s]
    for values_s in each:
        least, most = min(values_s), max(values_s)
        if not -LONGEST_S < least <= most < LONGEST_S or 0 < most < SHORTEST_S:
            raise ValueError(f"its times are from {least:.3g} to {most:.3g} s")
    return record


def _recovered_header(line: bytes, path: Path) -> Header | None:
    """Return the header at the end of a line that begins with a broken record."""
    start = line.rfind(b'{"run":"', 1, line.rfind(HEADER_MARK) + 1)
    if start == -1:
        return None
    try:
        header = _parse(line[start:], path, Record)
    except ValueError:
        return None
    return header if isinstance(header, Header) else None
