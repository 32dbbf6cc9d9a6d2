"""Collect the claims of all notes, choose among them, and judge them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from gpuperf.errors import UnknownName, UsageError
from gpuperf.theory.claims import notes_000, notes_001, notes_002, notes_003, notes_004
from gpuperf.theory.claims.claim import RULINGS, Basis, Claim, Judged, judge

NOTES = {
    "000": notes_000.CLAIMS,
    "001": notes_001.CLAIMS,
    "002": notes_002.CLAIMS,
    "003": notes_003.CLAIMS,
    "004": notes_004.CLAIMS,
}
CLAIMS = tuple(claim for claims in NOTES.values() for claim in claims)
OPTIONS = {
    "notes": "notes of the claims: 000 to 004",
    "id": "claims by id, or by its beginning, such as 001-1",
    "ruling": f"rulings: {', '.join(RULINGS)}",
    "basis": f"what the ruling follows from: {', '.join(get_args(Basis))}",
    "run": "folder of run files, or one run file, whose figures are shown beside",
}


@dataclass(frozen=True)
class Choice:
    """The claims that are asked for; an empty tuple takes all."""

    notes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    rulings: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    run: Path | None = None

    @classmethod
    def of(cls, given: dict[str, str]) -> Choice:
        """Parse the options of `gpuperf theory claims`. Raises: UnknownName, UsageError."""
        if given.get("run") == "":
            raise UsageError("--run names no folder", "for example --run gpuperf-runs")
        known = [claim.id for claim in CLAIMS]
        ids = _split(given.get("id", ""))
        for prefix in ids:
            if not any(each.startswith(prefix) for each in known):
                raise UnknownName("claim", prefix, known)
        return cls(
            _chosen("notes", given.get("notes", ""), NOTES),
            ids,
            _chosen("ruling", given.get("ruling", ""), RULINGS),
            _chosen("basis", given.get("basis", ""), get_args(Basis)),
            Path(given["run"]) if "run" in given else None,
        )

    def takes(self, claim: Claim) -> bool:
        """Whether *claim* is asked for by its id."""
        in_notes = not self.notes or claim.id.partition("-")[0] in self.notes
        return in_notes and (not self.ids or claim.id.startswith(self.ids))


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _chosen(noun: str, text: str, known: Iterable[str]) -> tuple[str, ...]:
    names = tuple(known)
    for part in _split(text):
        if part not in names:
            raise UnknownName(noun, part, names)
    return _split(text)


@dataclass(frozen=True)
class Study:
    """Judged claims, with a doubt for each file of the folder that is no run file."""

    judged: tuple[Judged, ...]
    doubts: tuple[str, ...] = ()
    records: int = 0


def study(choice: Choice) -> Study:
    """Judge the claims of *choice*. Raises: UsageError for a folder that cannot be read."""
    asked = [claim for claim in CLAIMS if choice.takes(claim)]
    if choice.run is None:
        return Study(_kept(map(judge, asked), choice))
    from gpuperf.theory.claims.query import answer, read_folder  # run files take time to import

    rows, doubts = read_folder(choice.run)
    judged = (judge(claim, answer(claim, rows)) for claim in asked)
    return Study(_kept(judged, choice), tuple(doubts), len(rows))


def _kept(judged: Iterable[Judged], choice: Choice) -> tuple[Judged, ...]:
    return tuple(
        each
        for each in judged
        if (not choice.rulings or each.ruling in choice.rulings)
        and (not choice.bases or each.basis in choice.bases)
    )
