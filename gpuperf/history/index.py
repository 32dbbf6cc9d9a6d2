"""Which run files are in a folder, and what do they say of a case, without reading them again?

The files are the truth. What was read of each is kept in an SQLite file under the cache folder, by
the file's path, size and time of change; an index that is missing, broken, locked, or of another
version is built anew, and where it cannot be kept it lives as long as the program.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuperf.errors import RunFileError, UsageError
from gpuperf.files import is_regular
from gpuperf.history.study import Environment, Reading, readings_of
from gpuperf.model.codec import decode, encode
from gpuperf.model.record import SCHEMA
from gpuperf.run.cache import key_of, private_folder
from gpuperf.run.store import NAMES, read_runs

VERSION = 1  # of the tables, and of what they say of a record
MOST_FILES = 20_000
MOST_SEEN = 200_000  # names in all folders together
MOST_BYTES = 256 << 20  # of a run file: 10,000 cases in 20 processes have less
MOST_PASSES = 2**31  # and ranks
PATIENCE_S = 2.0  # for another gpuperf that writes the index
GATE = "verdict.json"  # what a gate leaves beside the runs of its sides

TABLES = """
CREATE TABLE files (name BLOB PRIMARY KEY, size INTEGER, changed INTEGER, problem TEXT);
CREATE TABLE environments (id INTEGER PRIMARY KEY, told TEXT UNIQUE);
CREATE TABLE readings (
    name BLOB, "case" TEXT, run TEXT, environment INTEGER, started TEXT, status TEXT,
    pass INTEGER, rank INTEGER, median REAL, low REAL, high REAL, host TEXT
);
CREATE INDEX by_case ON readings ("case");
CREATE INDEX by_name ON readings (name);
"""
READINGS = """
SELECT "case", run, environments.told, started, status, pass, rank, host, median, low, high
FROM readings JOIN environments ON environments.id = environment
"""

Choose = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Holdings:
    """What a folder's run files hold: how many there are, the ids of all cases, the readings that
    were asked for, and what was passed over, in words."""

    files: int
    cases: tuple[str, ...]
    readings: tuple[Reading, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class _File:
    """A run file; `name` is its path below the folder, as bytes: not every name is Unicode."""

    path: Path
    name: bytes
    size: int
    changed: int


def read_folder(folder: Path, choose: Choose | None = None) -> Holdings:
    """The readings of the run files in and below *folder*: all, or those of the case that *choose*
    picks among their ids.

    Raises: UsageError where there is no such folder; whatever *choose* raises.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "--folder is where --out put the run files")
    files, skipped = _find(folder)

    def answered(place: str) -> Holdings:
        with contextlib.closing(_open(place)) as index:
            told = _update(index, files)
            return _answer(index, choose, len(files), (*skipped, *told))

    for anew in (False, True):
        with contextlib.suppress(sqlite3.Error, OSError, ValueError):
            return answered(_place(folder, anew))
    return answered(":memory:")


def _find(folder: Path) -> tuple[list[_File], list[str]]:
    """The run files in and below *folder*, and what of it was passed over. No link is followed,
    and no folder with a dot before its name entered."""
    found: list[_File] = []
    skipped: list[str] = []
    gates = seen = 0
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        seen += len(folders) + len(names)
        runs = sorted(name for name in names if name.endswith(NAMES))
        if GATE in names:  # a gate's sides are no history: one of them may never be merged
            gates += len(runs)
            continue
        for name in runs:
            path = Path(top, name)
            file = _regular(path, folder)
            if file is None:
                skipped.append(f"{path} is no plain file")
            else:
                found.append(file)
        if seen > MOST_SEEN or len(found) > MOST_FILES:
            skipped.append(f"{folder} holds too much: the first {len(found)} files were read")
            break
    if gates:
        skipped.append(f"{gates} files are sides of a gate, and no history")
    return found[:MOST_FILES], skipped


def _regular(path: Path, folder: Path) -> _File | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    name = os.fsencode(path.relative_to(folder))
    return _File(path, name, found.st_size, found.st_mtime_ns)


def _place(folder: Path, anew: bool = False) -> str:
    """Where the index of *folder* is kept; with *anew* there is none any more."""
    try:
        kept = private_folder("history") / f"{key_of(str(folder.resolve()))}.sqlite"
        if anew or not is_regular(kept):  # sqlite would wait for a pipe
            kept.unlink(missing_ok=True)
    except OSError:
        return ":memory:"
    return str(kept)


def _open(place: str) -> sqlite3.Connection:
    """The index at *place*, with its tables. Raises: sqlite3.Error."""
    index = sqlite3.connect(place, timeout=PATIENCE_S)
    try:
        # It can be built anew: nothing waits for the disk.
        index.execute("PRAGMA synchronous = OFF")
        index.execute("PRAGMA journal_mode = MEMORY")
        version = VERSION * 1000 + SCHEMA
        (found,) = index.execute("PRAGMA user_version").fetchone()
        if found != version:  # of another one, its tables are in the way
            index.executescript(f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {version}; END")
    except BaseException:
        index.close()
        raise
    return index


def _update(index: sqlite3.Connection, files: Sequence[_File]) -> list[str]:
    """Read what is new, forget what is gone; what was wrong with any file."""
    rows = index.execute("SELECT name, size, changed, problem FROM files")
    known = {name: (size, changed, problem) for name, size, changed, problem in rows}
    told = []
    for file in files:
        size, changed, problem = known.pop(file.name, (-1, -1, ""))
        if (size, changed) != (file.size, file.changed):
            readings, problem = _read(file)
            with index:
                _forget(index, file.name)
                _keep(index, file, readings, problem)
        if problem:
            told.append(f"{file.path}: {problem}")
    with index:
        for name in known:
            _forget(index, name)
    return told


def _read(file: _File) -> tuple[list[Reading], str]:
    """The readings of a file, and what is wrong with it."""
    if file.size > MOST_BYTES:
        return [], f"is over {MOST_BYTES >> 20} MiB"
    try:
        runs = read_runs(file.path)
    except RunFileError as error:
        return [], str(error).removeprefix(f"{file.path} ")
    readings = [reading for run in runs for reading in readings_of(run)]
    if not all(0 <= n < MOST_PASSES for r in readings for n in (r.pass_index, r.rank)):
        return [], "counts passes or ranks beyond any run"
    problems = runs[0].problems
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return readings, f"{problems[0]}{more}; the rest was read" if problems else ""


def _forget(index: sqlite3.Connection, name: bytes) -> None:
    index.execute("DELETE FROM readings WHERE name = ?", (name,))
    index.execute("DELETE FROM files WHERE name = ?", (name,))


def _keep(
    index: sqlite3.Connection, file: _File, readings: Sequence[Reading], problem: str
) -> None:
    ids: dict[Environment, int] = {}
    for environment in dict.fromkeys(reading.environment for reading in readings):
        told = encode(environment).decode()
        index.execute("INSERT OR IGNORE INTO environments (told) VALUES (?)", (told,))
        row = index.execute("SELECT id FROM environments WHERE told = ?", (told,)).fetchone()
        ids[environment] = row[0]
    index.executemany(
        "INSERT INTO readings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                file.name,
                r.case,
                r.run,
                ids[r.environment],
                r.started,
                r.status,
                r.pass_index,
                r.rank,
                r.median_s,
                r.low_s,
                r.high_s,
                r.host,
            )
            for r in readings
        ],
    )
    index.execute(
        "INSERT INTO files VALUES (?, ?, ?, ?)", (file.name, file.size, file.changed, problem)
    )


def _answer(
    index: sqlite3.Connection, choose: Choose | None, files: int, skipped: Sequence[str]
) -> Holdings:
    rows = index.execute('SELECT DISTINCT "case" FROM readings ORDER BY "case"')
    cases = tuple(case for (case,) in rows)
    if choose is None or not cases:
        found = index.execute(f"{READINGS} ORDER BY name")
    else:
        found = index.execute(f'{READINGS} WHERE "case" = ? ORDER BY name', (choose(cases),))
    return Holdings(files, cases, tuple(_readings(found)), tuple(skipped))


def _readings(rows: sqlite3.Cursor) -> Iterator[Reading]:
    known: dict[str, Environment] = {}
    for case, run, told, started, status, index, rank, host, *times in rows:
        if told not in known:
            known[told] = decode(told, Environment)
        # SQLite keeps what is not a number as NULL.
        median, low, high = (float("nan") if t is None else float(t) for t in times)
        yield Reading(case, run, known[told], started, status, index, rank, median, low, high, host)
