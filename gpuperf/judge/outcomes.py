"""Keep the outcomes of the judge's test in a file, a line of JSON each, plain or gzip."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.files import read_regular
from gpuperf.judge.corpus import Kind
from gpuperf.judge.fact import Status
from gpuperf.judge.reading import LARGEST
from gpuperf.model.codec import decode, encode

GZIP = b"\x1f\x8b"
BEGIN = b'{"name":'  # of a line of this file, which a killed sitting may have cut
ACCUSED: frozenset[Status] = frozenset({"cheat", "wrong", "suspect"})
HINT = "give another file, or delete it"


@dataclass(frozen=True)
class Basis:
    """What an outcome depends on: the hash of the texts of a sample, the version of gpuperf, the
    isolation, and the name of the device."""

    sha256: str
    gpuperf: str
    isolation: str
    device: str


CONDITIONS = {
    "sha256": "text",
    "gpuperf": "version of gpuperf",
    "isolation": "isolation",
    "device": "device",
}


@dataclass(frozen=True)
class Outcome:
    """What the judge said of a sample, the grade of its evidence, the facts that failed and those
    that were unavailable, each with its sentence, and the seconds that it took."""

    name: str
    kind: Kind
    family: str
    status: Status
    reason: str
    speedup: float | None = None
    grade: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)
    took_s: float = 0.0
    basis: Basis | None = None

    @property
    def mistaken(self) -> bool:
        """Whether a cheat is valid, or an honest submission is accused."""
        if self.kind == "cheat":
            return self.status == "valid"
        return self.status in ACCUSED


class KeptOutcomes:
    """The outcomes in the file *path*, which is made if there is none. Raises: UsageError."""

    def __init__(self, path: Path) -> None:
        self._path, self._packed, self._lead = path, path.suffix == ".gz", b""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            with path.open("ab"):
                self._known = self._read()
        except OSError as error:
            what = error.strerror or "it is broken"
            raise UsageError(f"{path} cannot keep outcomes: {what}", HINT) from None
        except (ValueError, EOFError, zlib.error):
            raise UsageError(f"{path} holds no outcomes of the judge", HINT) from None

    def _read(self) -> list[Outcome]:
        """Return all outcomes; drop a last line that was cut. Raises: OSError, ValueError."""
        data = read_regular(self._path, LARGEST)
        if data:
            self._packed = data.startswith(GZIP)
        if self._packed and data:
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(LARGEST + 1)
            if len(data) > LARGEST:
                raise ValueError("too much text")
        *lines, last = data.split(b"\n")
        known = [decode(line, Outcome) for line in lines if line.strip()]
        if known and last.startswith(BEGIN) and not _is_outcome(last):
            data = data.removesuffix(last)
            last = b""
            if not self._packed:
                os.truncate(self._path, len(data))
        self._lead = b"\n" if last else b""
        return [*known, decode(last, Outcome)] if last.strip() else known

    def of(self, bases: Mapping[str, tuple[Kind, Basis]]) -> list[Outcome]:
        """Return the decided outcomes of the samples *bases*, each with its kind and basis."""
        decided = {one.name: one for one in self._known if self._matches(one, bases)}
        return list(decided.values())

    @staticmethod
    def _matches(one: Outcome, bases: Mapping[str, tuple[Kind, Basis]]) -> bool:
        return one.status != "inconclusive" and bases.get(one.name) == (one.kind, one.basis)

    def set_aside(self, bases: Mapping[str, tuple[Kind, Basis]]) -> str:
        """Return a sentence about the samples *bases* with outcomes of other conditions alone."""
        done = {one.name for one in self.of(bases)}
        others = {
            one.name: one.basis
            for one in self._known
            if one.name in bases.keys() - done and one.basis != bases[one.name][1]
        }
        differ = [
            what
            for key, what in CONDITIONS.items()
            if any(getattr(b, key) != getattr(bases[n][1], key) for n, b in others.items() if b)
        ]
        if not others:
            return ""
        what = f"of another {' or '.join(differ)}" if differ else "without their conditions"
        return f"{self._path}: outcomes of {len(others)} samples are {what}: they are judged again"

    def add(self, outcome: Outcome) -> None:
        """Append *outcome*. Raises: UsageError."""
        line, self._lead = self._lead + encode(outcome) + b"\n", b""
        try:
            with self._path.open("ab") as file:
                file.write(gzip.compress(line) if self._packed else line)
        except OSError as error:
            what = f"{self._path} cannot keep outcomes: {error.strerror}"
            raise UsageError(what, HINT) from None


def _is_outcome(line: bytes) -> bool:
    try:
        decode(line, Outcome)
    except ValueError:
        return False
    return True
