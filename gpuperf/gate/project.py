"""What does a project say of its own gate: `gpuperf.toml`?

suite = "./bench/suite.toml"      # or ci, quick, full
target = 0.05                     # the slowdown that must be detectable in every case

[[margin]]
cases = "matmul/*"                # a pattern of case ids; the last one that matches counts
slower = 0.02                     # a slowdown that is not worth a word
owner = "@kernels"
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuperf.errors import UnknownName, UsageError
from gpuperf.files import read_regular
from gpuperf.model.toml import parse_toml

FILE = "gpuperf.toml"
LARGEST = 200_000  # bytes
MOST_MARGINS = 1000
LONGEST = 200  # characters of a pattern or an owner
KEYS, MARGIN_KEYS = ("suite", "target", "margin"), ("cases", "slower", "owner")


@dataclass(frozen=True)
class Margin:
    """What holds for the cases that a pattern matches."""

    cases: str
    slower: float | None = None
    owner: str = ""


@dataclass(frozen=True)
class Project:
    """The suite, the detectable slowdown that is asked for, and what holds for which cases."""

    suite: str = ""
    target: float | None = None
    margins: tuple[Margin, ...] = ()

    def margins_of(self, cases: Iterable[str]) -> dict[str, float]:
        """The margin of each of *cases* that has one of its own."""
        found: dict[str, float] = {}
        for case in cases:
            for margin in self.margins:
                if margin.slower is not None and fnmatch.fnmatchcase(case, _literal(margin.cases)):
                    found[case] = margin.slower
        return found

    def owners_of(self, cases: Iterable[str]) -> dict[str, str]:
        """The owner of each of *cases* that has one."""
        found: dict[str, str] = {}
        for case in cases:
            for margin in self.margins:
                if margin.owner and fnmatch.fnmatchcase(case, _literal(margin.cases)):
                    found[case] = margin.owner
        return found

    def refuse_unmatched(self, cases: Iterable[str]) -> None:
        """Raises: UsageError for a pattern that matches none of *cases*."""
        every = list(cases)
        for margin in self.margins:
            if not any(fnmatch.fnmatchcase(case, _literal(margin.cases)) for case in every):
                hint = f"cases are like {every[0]}" if every else "the suite has no cases"
                raise UsageError(f"no case matches {margin.cases!r} of {FILE}", hint)


def _literal(pattern: str) -> str:
    """*pattern* with its brackets meant as they stand: a case id has some."""
    return pattern.replace("[", "[[]")


def load_project(folder: Path) -> Project:
    """The project's own file in *folder*; an empty project without one. Raises: UsageError."""
    path = folder / FILE
    try:
        text = read_regular(path, LARGEST).decode("utf-8-sig")
    except FileNotFoundError:
        return Project()
    except OSError as error:
        raise UsageError(f"{FILE} cannot be read: {error.strerror}", "TOML as UTF-8") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{FILE} cannot be read: {error}", "TOML as UTF-8") from None
    return parse_project(text)


def parse_project(text: str) -> Project:
    """Raises: UsageError for an unknown key, and for what is no number or no text."""
    try:
        found = parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{FILE} is not TOML: {str(error)[:200]}", "see the README") from None
    _refuse_unknown(found, KEYS)
    margins = found.get("margin", [])
    if not isinstance(margins, list) or len(margins) > MOST_MARGINS:
        raise UsageError(f"margin of {FILE} is no list", '[[margin]] with cases = "matmul/*"')
    target = found.get("target")
    return Project(
        _text(found, "suite"),
        None if target is None else _fraction("target", target),
        tuple(_margin(margin) for margin in margins),
    )


def _margin(given: Any) -> Margin:
    if not isinstance(given, dict) or not isinstance(given.get("cases"), str):
        raise UsageError(f"a margin of {FILE} names no cases", 'cases = "matmul/*"')
    _refuse_unknown(given, MARGIN_KEYS)
    slower = given.get("slower")
    return Margin(
        _text(given, "cases"),
        None if slower is None else _fraction("slower", slower),
        _text(given, "owner"),
    )


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key, "")
    if not isinstance(value, str) or len(value) > LONGEST:
        raise UsageError(f"{key} of {FILE} is no text of up to {LONGEST} letters", f'{key} = "…"')
    return value


def _fraction(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        told = str(value)[:40] if not isinstance(value, int) or abs(value) < 10**9 else "huge"
        raise UsageError(f"{key} of {FILE} is {told}", f"a fraction: {key} = 0.02")
    return float(value)


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise UnknownName(f"key of {FILE}", key[:40], known)
