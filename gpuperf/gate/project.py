"""Read a project's settings for its gate from `gpuperf.toml`.

suite = "./bench/suite.toml"      # or ci, quick, full, screen
target = 0.05                     # the slowdown that must be detectable in every case

[[margin]]
cases = "matmul/*"                # a pattern of case ids; the last one that matches counts
slower = 0.02                     # the slowdown that is tolerated
owner = "@kernels"
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
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
    """The tolerated slowdown and the owner of the cases that a pattern matches."""

    cases: str
    slower: float | None = None
    owner: str = ""

    def matches(self, case: str) -> bool:
        """Return whether the pattern matches *case*, an id; its brackets are literal."""
        return fnmatch.fnmatchcase(case, self.cases.replace("[", "[[]"))


@dataclass(frozen=True)
class Project:
    """A project's settings: its suite, the slowdown that must be detectable in every case
    (`target`, 0.05 for 5 %), and the margins of cases."""

    suite: str = ""
    target: float | None = None
    margins: tuple[Margin, ...] = ()

    def margins_of(self, cases: Iterable[str]) -> dict[str, float]:
        """Return the tolerated slowdown of each of *cases* with its own; the last match wins."""
        return {c: m.slower for c, m in self._matches(cases) if m.slower is not None}

    def owners_of(self, cases: Iterable[str]) -> dict[str, str]:
        """Return the owner of each of *cases* that has one."""
        return {case: margin.owner for case, margin in self._matches(cases) if margin.owner}

    def _matches(self, cases: Iterable[str]) -> Iterator[tuple[str, Margin]]:
        every = list(cases)
        for margin in self.margins:
            yield from ((case, margin) for case in every if margin.matches(case))

    def refuse_unmatched(self, cases: Iterable[str]) -> None:
        """Raise UsageError for a pattern that matches none of *cases*."""
        every = list(cases)
        for margin in self.margins:
            if not any(map(margin.matches, every)):
                hint = f"cases are like {every[0]}" if every else "the suite has no cases"
                raise UsageError(f"no case matches {margin.cases!r} of {FILE}", hint)


def load_project(folder: Path) -> Project:
    """Read the project's file in *folder*; without one the project is empty. Raises: UsageError."""
    path = folder / FILE
    try:
        text = read_regular(path, LARGEST).decode("utf-8-sig")
    except FileNotFoundError:
        return Project()
    except OSError as error:
        raise UsageError(
            f"{FILE} cannot be read: {error.strerror}", "write TOML as UTF-8"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{FILE} cannot be read: {error}", "write TOML as UTF-8") from None
    return parse_project(text)


def parse_project(text: str) -> Project:
    """Parse a project's settings. Raises: UsageError for an unknown key or a wrong value."""
    try:
        settings = parse_toml(text)
    except ValueError as error:
        raise UsageError(
            f"{FILE} is not TOML: {str(error)[:200]}", 'for example suite = "bench.toml"'
        ) from None
    _refuse_unknown(settings, KEYS)
    margins = settings.get("margin", [])
    if not isinstance(margins, list) or len(margins) > MOST_MARGINS:
        raise UsageError(
            f"margin of {FILE} is not a list", 'write [[margin]], then cases = "matmul/*"'
        )
    target = settings.get("target")
    return Project(
        _text(settings, "suite"),
        None if target is None else _fraction("target", target),
        tuple(_margin(margin) for margin in margins),
    )


def _margin(given: Any) -> Margin:
    if not isinstance(given, dict) or not isinstance(given.get("cases"), str):
        raise UsageError(f"a margin of {FILE} names no cases", 'write cases = "matmul/*"')
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
        message = f"{key} of {FILE} is not a text of up to {LONGEST} letters"
        raise UsageError(message, f'write {key} = "…"')
    return value


def _fraction(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        text = str(value)[:40] if not isinstance(value, int) or abs(value) < 10**9 else "huge"
        raise UsageError(f"{key} of {FILE} is {text}", f"write a fraction: {key} = 0.02")
    return float(value)


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise UnknownName(f"key of {FILE}", key[:40], known)
