"""How is a run read back, whatever happened to it meanwhile?

A run is one JSONL file: a header, then a record a line (`runfile.py` writes it), plain or
compressed by gzip afterwards. What is half written is skipped and said; a header glued to a broken
line is found again.
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
from gpuperf.model.summary import RecordSummary, RunSummary, summarize
from gpuperf.model.text import clean_json
from gpuperf.model.workload import Case
from gpuperf.peaks.physics import check_physics
from gpuperf.run.runfile import GZIP


class _Kept(Protocol):
    """A record, whole or in brief."""

    @property
    def run(self) -> str:
        """The id of its run."""

    @property
    def case(self) -> Case:
        """What was measured."""

    @property
    def contract(self) -> Contract:
        """How."""

    @property
    def pass_index(self) -> int:
        """In which process of several."""

    @property
    def rank(self) -> int:
        """On which of several devices."""


K = TypeVar("K", bound=_Kept)
R = TypeVar("R", Run, RunSummary)

NAMES = (".jsonl", ".jsonl.gz")  # how the name of a run file ends
JUDGED = 9  # the first schema whose records were judged by physics before they were written
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
    """The run in *path*. Raises: RunFileError when there is none, or more than one."""
    return _only(read_runs(path), path)


def read_summary(path: str | Path) -> RunSummary:
    """The same in brief. Raises: RunFileError."""
    found = [
        RunSummary(header, records, problems, lambda: read_run(path))
        for header, records, problems in _read(Path(path), RecordSummary)
    ]
    kept = _only(found, path)
    return kept if kept.header.schema >= JUDGED else summarize(read_run(path))


def read_runs(path: str | Path) -> tuple[Run, ...]:
    """Every run in *path*, in the order of their headers; of each key the last record counts.

    Raises: RunFileError when the file cannot be read, holds no run, or is from a newer gpuperf.
    """
    return tuple(
        Run(header, _renewed(header, records), problems)
        for header, records, problems in _read(Path(path), Record)
    )


def _renewed(header: Header, records: tuple[Record, ...]) -> tuple[Record, ...]:
    """*records*, those of older schemas as this version would have written them: judged by physics,
    and with the fields that came later."""
    return tuple(
        check_physics(r, header.peaks, header.ceilings) if r.schema < JUDGED else r
        for r in map(upgrade_record, records)
    )


def _only(runs: Sequence[R], path: str | Path) -> R:
    if len(runs) > 1:
        names = ", ".join(run.header.run for run in runs[:5])
        raise RunFileError(f"{path} holds {len(runs)} runs: {names}", "split the file, a run each")
    return runs[0]


def _read(path: Path, kind: type[K]) -> list[tuple[Header, tuple[K, ...], tuple[str, ...]]]:
    """Each run in *path*: its header, its records as *kind*, and what was unreadable."""
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
                glued = _glued_header(line, path)
                if glued is not None:
                    headers.setdefault(glued.run, glued)
                continue
            if isinstance(value, Header):
                headers.setdefault(value.run, value)
                continue
            _share(value, last)
            if last is None or value.contract is not last.contract:  # its hash takes as long as all
                mark = marks.setdefault(value.contract, len(marks))
            last = value
            key = (value.case.id, mark, value.pass_index, value.rank)
            records.setdefault(value.run, {})[key] = value
    if not headers:
        raise RunFileError(
            f"{path} is not a run of gpuperf", "a run file is what `gpuperf roofline` writes"
        )
    strays = sum(len(kept) for run, kept in records.items() if run not in headers)
    if strays:
        problems.append(f"{strays} records belong to runs whose header is missing")
    return [
        (header, tuple(records.get(run, {}).values()), tuple(problems))
        for run, header in headers.items()
    ]


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """What is read has no cycles, and looking for some doubles the time of large files."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _share(record: _Kept, last: _Kept | None) -> None:
    """Let *record* hold what equals a part of the *last* one in its place: of ten thousand records
    one contract and one fingerprint."""
    write = object.__setattr__ if isinstance(record, Record) else setattr  # the one is frozen
    for name in ("contract", "fingerprint"):
        if last is not None and getattr(record, name) == getattr(last, name):
            write(record, name, getattr(last, name))


def _refuse_broken(problems: list[str], path: Path) -> None:
    if len(problems) > MOST_BROKEN:
        raise RunFileError(
            f"{path} has over {MOST_BROKEN:,} lines that are no records: the first, {problems[0]}",
            "this is no run that gpuperf wrote",
        )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The non-empty lines with their numbers, none longer than `LONGEST_LINE`."""
    if path.exists() and not path.is_file():
        raise RunFileError(f"{path} is not a file", "a run file is what `gpuperf roofline` writes")
    try:
        with path.open("rb") as file:
            text = _text(file)
            _refuse_long(text, path)  # before a second is spent on what will be refused
            yield from _bounded_lines(text, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RunFileError(
            f"{path} is broken as a gzip file: {error}", "fetch it again, or compress it again"
        ) from None
    except OSError as error:
        raise RunFileError(
            f"{path} cannot be read: {error.strerror}",
            "a run file is what `gpuperf roofline` writes",
        ) from None


def _text(file: io.BufferedReader) -> io.BufferedIOBase:
    """Return *file*, decompressed where it begins as gzip does, whatever its name is."""
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
        "this is no run that gpuperf wrote",
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
    """The noun on *line*. Raises: ValueError when it is broken, RunFileError when it is newer."""
    line = clean_json(line)
    if line.endswith(OWN_END, 0, len(line.rstrip())):  # then the brace closes the whole record
        return decode(line, kind)
    peek = decode(line, _Peek)
    if peek.schema > SCHEMA:
        raise RunFileError(
            f"{path} has schema {peek.schema}; this gpuperf reads up to {SCHEMA}", "upgrade gpuperf"
        )
    if peek.type == "header":
        return upgrade_header(decode(line, Header))
    if peek.type == "record":
        return decode(line, kind)
    raise ValueError("neither a header nor a record")


def _glued_header(line: bytes, path: Path) -> Header | None:
    """The header at the end of a line that begins with a broken record."""
    start = line.rfind(b'{"run":"', 1, line.rfind(HEADER_MARK) + 1)
    if start == -1:
        return None
    try:
        found = _parse(line[start:], path, Record)
    except ValueError:
        return None
    return found if isinstance(found, Header) else None
