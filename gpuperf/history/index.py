"""Read the run files of a folder, and store the times of each file in the cache.

The cached times of a file are used as long as the size of the file and its time of change stay the
same. One cached value has the times of a whole folder, since opening thousands of small files takes
longer than decoding them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from gpuperf.errors import RunFileError, UsageError
from gpuperf.history.study import Environment, Reading, readings_of
from gpuperf.model.record import SCHEMA
from gpuperf.model.workload import Case
from gpuperf.run.cache import fetch, keep, key_of
from gpuperf.run.store import NAMES, read_runs

VERSION = 1  # of the cached value
MOST_FILES = 20_000
MOST_NAMES = 200_000  # files and folders in all folders together
MOST_BYTES = 256 << 20  # bytes of a run file: 10,000 cases in 20 processes have fewer
MOST_PASSES = 2**31  # passes and ranks
GATE = "verdict.json"  # what a gate leaves beside the runs of its sides

Choose = Callable[[Sequence[Case]], Case]
# Indices of the case and the environment; run, started, status, pass, rank, host; and quartiles.
Row = tuple[int, int, str, str, str, int, int, str, tuple[float, float, float] | None]
T = TypeVar("T")


@dataclass(frozen=True)
class FolderReadings:
    """The number of run files in a folder, the cases in all of them, the readings of the chosen
    cases, and a sentence for each file that was skipped or is damaged."""

    files: int
    cases: tuple[Case, ...]
    readings: tuple[Reading, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class _File:
    """The readings of one run file as rows, with the file's size in bytes and its time of change in
    nanoseconds, and what is wrong with it (`problem`)."""

    size: int
    changed: int
    rows: list[Row] = field(default_factory=list)
    problem: str = ""


@dataclass
class _Index:
    """The run files of a folder by name, with the cases and the environments of their rows."""

    cases: list[Case] = field(default_factory=list)
    environments: list[Environment] = field(default_factory=list)
    files: dict[str, _File] = field(default_factory=dict)


def read_folder(folder: Path, choose: Choose | None = None) -> FolderReadings:
    """Read the run files in and below *folder*: all cases, or the one that *choose* picks.

    Raises: UsageError where there is no such folder; whatever *choose* raises.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "--folder is where --out put the run files")
    paths, skipped = _run_files(folder)
    index = _indexed(folder, paths)
    files = sorted(index.files.items())
    skipped += [f"{paths[name]}: {file.problem}" for name, file in files if file.problem]
    rows = [row for _, file in files for row in file.rows]
    measured = (index.cases[number] for number in {row[0] for row in rows})
    cases = tuple(sorted(measured, key=lambda case: case.id))
    if choose is not None and cases:
        chosen = index.cases.index(choose(cases))
        rows = [row for row in rows if row[0] == chosen]
    readings = tuple(
        Reading(index.cases[row[0]], index.environments[row[1]], *row[2:]) for row in rows
    )
    return FolderReadings(len(paths), cases, readings, tuple(skipped))


def _run_files(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the run files in and below *folder* by their names in ASCII, and a sentence on each
    thing that was skipped: links, sides of gates, files beyond the limits.

    Folders whose names begin with a dot are not entered.
    """
    paths: dict[str, Path] = {}
    skipped: list[str] = []
    gates = names_read = 0
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        names_read += len(folders) + len(names)
        runs = sorted(name for name in names if name.endswith(NAMES))
        if GATE in names:  # the head of a gate may never be merged
            gates += len(runs)
            continue
        for name in runs:
            path = Path(top, name)
            if path.is_file() and not path.is_symlink():
                paths[ascii(str(path.relative_to(folder)))] = path
            else:
                skipped.append(f"{path} is not a regular file")
        if names_read > MOST_NAMES or len(paths) > MOST_FILES:
            paths = dict([*paths.items()][:MOST_FILES])
            skipped.append(f"{folder} holds too much: the first {len(paths)} files were read")
            break
    if gates:
        skipped.append(f"{gates} files are sides of a gate, and not part of a history")
    return paths, skipped


def _indexed(folder: Path, paths: Mapping[str, Path]) -> _Index:
    """Return the index of *paths* from the cache, after reading the files that are new or changed.

    If the user interrupts, the readings so far are stored all the same.
    """
    key = key_of(VERSION, SCHEMA, str(folder.resolve()))
    index = fetch("history", key, _Index) or _Index()
    removed = index.files.keys() - paths.keys()
    for name in removed:
        del index.files[name]
    changed = bool(removed)
    case_numbers: dict[object, int] = {case.id: i for i, case in enumerate(index.cases)}
    numbers: dict[object, int] = {facts: i for i, facts in enumerate(index.environments)}
    try:
        for name, path in paths.items():
            known = index.files.get(name)
            try:
                status = path.lstat()
            except OSError:  # it was removed after the folder was listed
                continue
            if known and (known.size, known.changed) == (status.st_size, status.st_mtime_ns):
                continue
            changed = True
            readings, problem = _read(path, status.st_size)
            rows: list[Row] = [
                (
                    _number(r.case, r.case.id, case_numbers, index.cases),
                    _number(r.environment, r.environment, numbers, index.environments),
                    *(r.run, r.started, r.status, r.pass_index, r.rank, r.host, r.quartiles_s),
                )
                for r in readings
            ]
            index.files[name] = _File(status.st_size, status.st_mtime_ns, rows, problem)
    finally:
        if changed:
            keep("history", key, index)
    return index


def _number(value: T, key: object, numbers: dict[object, int], values: list[T]) -> int:
    """Return the index of *value* in *values*, to which it is appended if its *key* is new."""
    number = numbers.setdefault(key, len(values))
    if number == len(values):
        values.append(value)
    return number


def _read(path: Path, size: int) -> tuple[list[Reading], str]:
    """Return the readings of the file at *path*, of *size* bytes, and what is wrong with it."""
    if size > MOST_BYTES:
        return [], f"is over {MOST_BYTES >> 20} MiB"
    try:
        runs = read_runs(path)
    except RunFileError as error:
        return [], str(error).removeprefix(f"{path} ")
    readings = [reading for run in runs for reading in readings_of(run)]
    if not all(0 <= n < MOST_PASSES for r in readings for n in (r.pass_index, r.rank)):
        return [], "counts passes or ranks beyond any run"
    problems = runs[0].problems
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return readings, f"{problems[0]}{more}; the rest was read" if problems else ""
