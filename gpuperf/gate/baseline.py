"""Store baselines, the runs that later runs are compared with.

Baselines are plain files in a folder of the project: an index, and a copy of each run. A baseline
is looked up by its name, the hard facts of the device, the software stack and the contract: another
version of torch alone changed the time of a training step by 16 %. A run that did not pass becomes
a baseline only with a reason.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuperf.errors import CannotMeasure, UnknownName, UsageError
from gpuperf.files import locked, read_regular, write_atomically
from gpuperf.gate.compare import compare_runs, incomparable
from gpuperf.gate.rule import Rule
from gpuperf.gate.verdict import read_report
from gpuperf.model.codec import decode, encode
from gpuperf.model.record import Header, Run
from gpuperf.model.summary import RunSummary, summarize
from gpuperf.model.text import clean_json
from gpuperf.run.cache import key_of
from gpuperf.run.session import FAILED
from gpuperf.run.store import read_run, read_summary

INDEX, SCHEMA = "baselines.json", 1
LOCK = ".baselines.lock"
LARGEST = 2 << 20  # bytes
MOST_BASELINES = 1000
FIELD = 1000  # characters
STACK = ("driver", "torch", "triton", "cuda", "hip")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
STORED = re.compile(rf"{NAME.pattern}-[0-9a-f]{{8}}\.jsonl")
HINT = "gpuperf baseline set RUN"


@dataclass(frozen=True)
class Baseline:
    """One baseline: its name, its file beside the index, the id of its run, when it was set
    (`created`), why a run that did not pass was accepted (`reason`), when it expired, and the
    device and software for which it is used."""

    name: str
    file: str
    run: str
    created: str
    device: str
    stack: str
    key: str
    reason: str = ""
    expired: str = ""


@dataclass(frozen=True)
class _Index:
    baselines: tuple[Baseline, ...] = ()
    schema: int = SCHEMA


class Shelf:
    """The baselines in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def all(self) -> tuple[Baseline, ...]:
        """Return all baselines in the order in which they were set.

        Raises: UsageError for a broken index.
        """
        path, hint = self.folder / INDEX, "remove it, and set the baselines again"
        try:
            index = decode(clean_json(read_regular(path, LARGEST)), _Index)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}", hint) from None
        except ValueError as error:
            message = f"{path} is not an index of baselines: {str(error)[:200]}"
            raise UsageError(message, hint) from None
        if index.schema != SCHEMA:
            raise UsageError(f"{path} has schema {index.schema}", f"this gpuperf reads {SCHEMA}")
        if why := _odd(index.baselines):
            raise UsageError(f"{path} is not an index of baselines: {why}", hint)
        return index.baselines

    def set(self, name: str, path: Path, reason: str = "") -> Baseline:
        """Store the run in *path* as *name*, in place of the baseline of that name for the same
        device, software and contract.

        Raises: UsageError if the run did not pass, or is slower than that baseline, and no *reason*
        is given.
        """
        if not NAME.fullmatch(name):
            message = f"{name[:80]!r} is not a name of a baseline"
            raise UsageError(message, "use letters, digits, and . _ -")
        run = read_run(path)
        with self._changing():
            return self._set(name, path, run, reason)

    def _set(self, name: str, path: Path, run: Run, reason: str) -> Baseline:
        key = _key(run.header)
        same = (b for b in self.all() if (b.name, b.key) == (name, key) and not b.expired)
        before = next(same, None)
        for why in (*_failures(run), *_of_gate(path), *self._slower(before, run)):
            if not reason:
                message = f"{path.name} cannot become a baseline: {why}"
                raise UsageError(message, "give the reason why it may with --reason")
        made = Baseline(
            name,
            f"{name}-{key[:8]}.jsonl",
            run.header.run[:200],
            _now(),
            run.header.device.name[:200],
            _stack(run.header),
            key,
            reason[:500],
        )
        others = [b for b in self.all() if (b.name, b.key) != (name, key)]
        if len(others) >= MOST_BASELINES:
            message = f"{self.folder} holds {len(others):,} baselines, which is the most"
            raise UsageError(message, "choose another --folder")
        write_atomically(self.folder / made.file, path.read_bytes())
        self._write([*others, made])
        return made

    def find(self, name: str, header: Header) -> tuple[Baseline, RunSummary]:
        """Return the baseline *name* for the device, software and contract of *header*.

        Raises: CannotMeasure if there is none, or if it has expired.
        """
        named = [b for b in self.all() if b.name == name]
        baseline = next((b for b in named if b.key == _key(header)), None)
        if baseline is None:
            raise CannotMeasure(
                f"there is no baseline {name[:80]!r} for {header.device.name} under "
                f"{_stack(header)}{self._nearest(named, header)}",
                HINT,
            )
        if baseline.expired:
            message = f"the baseline {name!r} expired on {baseline.expired[:10]}"
            raise CannotMeasure(message, HINT)
        return baseline, self.read(baseline)

    def read(self, baseline: Baseline) -> RunSummary:
        """Read the run of *baseline*. Raises: RunFileError."""
        return read_summary(self.folder / Path(baseline.file).name)

    def named(self, name: str) -> tuple[Baseline, ...]:
        """Return all baselines called *name*. Raises: UnknownName."""
        baselines = tuple(b for b in self.all() if b.name == name)
        if not baselines:
            raise UnknownName("baseline", name, {b.name for b in self.all()}, HINT)
        return baselines

    def expire(self, name: str) -> tuple[Baseline, ...]:
        """Expire the baselines called *name*; their files stay. Raises: UnknownName."""
        self.named(name)
        with self._changing():
            every = [
                replace(b, expired=b.expired or _now()) if b.name == name else b for b in self.all()
            ]
            self._write(every)
        return tuple(b for b in every if b.name == name)

    def _slower(self, before: Baseline | None, run: Run) -> list[str]:
        """Return why *run* must not replace the baseline *before*: a comparison that fails."""
        if before is None:
            return []
        report = compare_runs(self.read(before), summarize(run), Rule(), target=1.0)
        if report.outcome == "passed":
            return []
        return [f"against the last one it is {report.outcome}: {report.reasons[0]}"]

    def _nearest(self, named: Sequence[Baseline], header: Header) -> str:
        """Return why the latest of the baselines *named* does not fit the run of *header*."""
        for baseline in reversed(named):
            if baseline.stack != _stack(header):
                return f"; the latest was measured under {baseline.stack[:200]}"
            reasons = incomparable(self.read(baseline).header, header)
            if reasons:
                return f"; for the latest {'; '.join(reasons)[:400]}"
        return ""

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Lock the index while it is read and written. Raises: UsageError if that is impossible."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder / LOCK):
                yield
        except OSError as error:
            message = f"{self.folder} cannot be written: {error.strerror}"
            raise UsageError(message, "choose another --folder") from None

    def _write(self, baselines: Sequence[Baseline]) -> None:
        write_atomically(self.folder / INDEX, encode(_Index(tuple(baselines))) + b"\n")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())


def _odd(baselines: Sequence[Baseline]) -> str:
    """Return the first thing in an index that gpuperf never writes; empty if there is none."""
    if len(baselines) > MOST_BASELINES:
        return f"it has {len(baselines):,} baselines, and {MOST_BASELINES:,} is the most"
    for baseline in baselines:
        if not NAME.fullmatch(baseline.name):
            return f"{baseline.name[:80]!r} is not a name of a baseline"
        if not STORED.fullmatch(Path(baseline.file).name):
            return f"{baseline.file[:80]!r} is not a file of a baseline"
        if any(len(value) > FIELD for value in vars(baseline).values()):
            return f"a field of {baseline.name} has over {FIELD:,} characters"
    return ""


def _key(header: Header) -> str:
    """Return a key that is the same for runs of one device, software stack and contract."""
    return key_of(
        sorted(header.fingerprint.hard.items()), _stack(header), header.contract, header.variants
    )


def _stack(header: Header) -> str:
    soft = header.fingerprint.soft
    return ", ".join(f"{name} {str(soft[name])[:60]}" for name in STACK if soft.get(name))


def _failures(run: Run) -> Iterator[str]:
    """Yield why *run* did not pass: a failed case, cases without a record, unreadable lines."""
    measured = {r.case.id for r in run.records}
    missing = [case for case in run.header.plan if case.id not in measured]
    if not any(r.status == "ok" for r in run.records):
        yield "nothing was measured"
    for record in run.records:
        if record.status in FAILED:
            yield f"{record.case.id[:200]} is {record.status}"
            break
    if missing:
        yield f"{len(missing)} of {len(run.header.plan)} cases were never measured"
    if run.problems:
        yield f"{len(run.problems)} of its lines cannot be read"


def _of_gate(path: Path) -> list[str]:
    """Return the outcome of the gate that measured this run, unless it passed."""
    verdict = path.parent / "verdict.json"
    if path.name.removesuffix(".gz") != "head.jsonl":
        return []
    outcome = read_report(verdict).outcome if os.path.lexists(verdict) else "without a verdict"
    return [] if outcome == "passed" else [f"its gate is {outcome}"]
