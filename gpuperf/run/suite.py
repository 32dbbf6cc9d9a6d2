"""Read a suite: its cases, and how they are measured.

A suite is TOML: `[conditions]`, and a `[[case]]` for each workload, whose keys are those of the
command line (`sizes`, `dtype`, `impl`, any axis or option), as text. Every key is known and every
range bounded, so reading a suite runs no code; but a workload that it names by a file or a module
is code, as on the command line.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

from gpuperf.errors import UnknownName, UsageError
from gpuperf.files import read_regular
from gpuperf.model.codec import encode
from gpuperf.model.contract import Counting, DeviceFacts
from gpuperf.model.protocol import Described
from gpuperf.model.timers import timer_names
from gpuperf.model.toml import parse_toml
from gpuperf.model.workload import Case
from gpuperf.run.catalogue import find_workload
from gpuperf.run.plan import MOST_CASES, Conditions, plan_cases, settle_dtype

SCHEMA = 1
EXAMPLE = 'schema = 1, and a [[case]] for each workload, with op = "matmul" and sizes = "64:512"'
LARGEST_FILE = 200_000  # bytes; gpuperf's own suites have about a thousand
MOST_ENTRIES = 1000
CONDITIONS = ("timer", "precision", "budget_s", "gap_s", "counters")


@dataclass(frozen=True)
class Entry:
    """Cases of one workload, as a command line gives them; `axes` are axes and options."""

    op: str
    sizes: str | None = None
    implementations: tuple[str, ...] = ()
    axes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """A list of cases with a name, its purpose, and the conditions to measure under."""

    name: str
    about: str
    entries: tuple[Entry, ...]
    conditions: Conditions


def suites() -> tuple[str, ...]:
    """Return the names of the suites that come with gpuperf."""
    folder = importlib.resources.files("gpuperf.configs") / "suites"
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir()))


def load_suite(name: str) -> Suite:
    """Load the suite called *name*, or the file of that name. Raises: UsageError."""
    if name in suites():
        folder = importlib.resources.files("gpuperf.configs") / "suites"
        return parse_suite((folder / f"{name}.toml").read_text(encoding="utf-8"), name)
    if not name.endswith(".toml"):
        known = ", ".join(suites())
        raise UnknownName("suite", name, suites(), f"known: {known}; or a file: ./mine.toml")
    path = Path(name)
    try:
        text = read_regular(path, LARGEST_FILE).decode("utf-8-sig")
    except FileNotFoundError:
        known = ", ".join(suites())
        raise UsageError(f"there is no suite {name!r}", f"known: {known}") from None
    except OSError as error:
        message = f"the suite {name!r} cannot be read: {error.strerror}"
        raise UsageError(message, "a suite is a short TOML file") from None
    except UnicodeDecodeError as error:
        message = f"the suite {name!r} cannot be read: {error}"
        raise UsageError(message, "save it as UTF-8") from None
    return parse_suite(text, path.stem)


def hash_of_suite(suite: Suite) -> str:
    """Return a hash that two suites share if they ask for the same cases under one name."""
    return sha256(encode(suite)).hexdigest()


def parse_suite(text: str, name: str) -> Suite:
    """Parse the *text* of the suite called *name*. Raises: UsageError."""
    try:
        suite = parse_toml(text)
    except ValueError as error:
        message = f"the suite {name!r} is not TOML: {str(error)[:200]}"
        raise UsageError(message, EXAMPLE) from None
    _refuse_unknown(name, "suite", suite, ("schema", "about", "conditions", "case"))
    if suite.get("schema") != SCHEMA:
        raise UsageError(
            f"the schema of the suite {name!r} is {_brief(suite.get('schema'))}",
            f"schema = {SCHEMA}",
        )
    cases = suite.get("case")
    if not isinstance(cases, list) or not 0 < len(cases) <= MOST_ENTRIES:
        raise UsageError(f"the suite {name!r} has no cases", '[[case]] with op = "matmul"')
    entries = tuple(_entry(name, case) for case in cases)
    return Suite(name, str(suite.get("about", "")), entries, _conditions(name, suite))


def plan_suite(
    suite: Suite,
    describe: Callable[[str], Described],
    device: DeviceFacts,
    cached: bool = True,
    world: int | None = None,
) -> tuple[Case, ...]:
    """Plan each case of *suite* once on *device*, or in a gang of *world* ranks; *cached* is that
    of `find_workload`.

    Raises: UsageError, UnknownName, WorkloadError.
    """
    cases: dict[str, Case] = {}
    for entry in suite.entries:
        description = find_workload(entry.op, describe, cached)
        planned = plan_cases(description, entry.axes, entry.sizes, entry.implementations, world)
        for case in settle_dtype(planned, description, device):
            if cases.setdefault(case.id, case).source != case.source:
                raise UsageError(
                    f"{case.id} comes from {case.source} and from {cases[case.id].source}",
                    "rename one of the two workloads",
                )
        if len(cases) > MOST_CASES:
            raise UsageError(f"the suite has more than {MOST_CASES} cases", "narrow a range")
    return tuple(cases.values())


def _entry(name: str, case: Any) -> Entry:
    if not isinstance(case, dict) or not isinstance(case.get("op"), str):
        raise UsageError(f"a case of the suite {name!r} names no workload", 'op = "matmul"')
    axes = {}
    for key, value in case.items():
        if not isinstance(value, str):
            raise UsageError(
                f"{key} of a case of the suite {name!r} is {_brief(value)}, and must be text",
                f'{key} = "64"',
            )
        if key not in ("op", "sizes", "impl"):
            axes[key.replace("-", "_")] = value
    named = tuple(word.strip() for word in case.get("impl", "").split(",") if word.strip())
    return Entry(case["op"], case.get("sizes"), named, axes)


def _conditions(name: str, suite: Mapping[str, Any]) -> Conditions:
    given = suite.get("conditions", {})
    if not isinstance(given, dict):
        raise UsageError(f"conditions of the suite {name!r} are not a table", "[conditions]")
    _refuse_unknown(name, "conditions", given, CONDITIONS)
    for key, known in (("timer", timer_names()), ("counters", get_args(Counting))):
        if key in given and given[key] not in known:
            raise UnknownName(key, str(given[key])[:40], known)
    numbers = {}
    for key in ("precision", "budget_s", "gap_s"):
        value = given.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UsageError(f"{key} of the suite {name!r} is not a number", f"{key} = 0.2")
        if value is not None and not 1e-4 <= value <= 1e4:
            raise UsageError(f"{key} of the suite {name!r} is {_brief(value)}", "0.0001 to 10000")
        if value is not None:
            numbers[key] = float(value)
    usual = Conditions()
    return Conditions(
        timer=given.get("timer"),
        precision=numbers.get("precision", usual.precision),
        budget_s=numbers.get("budget_s", usual.budget_s),
        gap_s=numbers.get("gap_s"),
        counting=given.get("counters", "off"),
    )


def _brief(value: Any) -> str:
    """Write a value of any size in a few characters."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "a huge number"
    return repr(value)[:40]


def _refuse_unknown(
    name: str, where: str, table: Mapping[str, Any], known: tuple[str, ...]
) -> None:
    for key in table:
        if key not in known:
            place = "" if where == "suite" else f" in [{where}]"
            message = f"the suite {name!r} has{place} the unknown key {key!r}"
            raise UnknownName("key", key, known, message=message)
