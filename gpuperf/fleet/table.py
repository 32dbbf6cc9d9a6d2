"""Make the tables of a judged fleet: the bad devices, the tests, and what is wrong with shards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuperf.fleet.rule import ALL
from gpuperf.fleet.session import HostResult
from gpuperf.fleet.study import Bad, Judgement
from gpuperf.model.text import shorten
from gpuperf.show.data import to_json
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of

SCHEMA = 1
MOST_ROWS = 40  # rows of a table on a screen
NAME = 60  # characters of a test or a reason
BAD_COLUMNS = (
    Column("host", left=True, identity=True),
    Column("device"),
    Column("test", left=True, code=True, wrap=20),
    Column("slower"),
    Column("p", keep=2),
    Column("clock", keep=3),
    Column("because", left=True, keep=4, wrap=24),
)
TEST_COLUMNS = (
    Column("test", left=True, identity=True, code=True),
    Column("cases", keep=1),
    Column("noise", "between devices"),
    Column("detectable"),
    Column("fleet", "vs expected"),
)
PAIR_COLUMNS = (
    Column("link or host", left=True, identity=True),
    Column("test", left=True, code=True),
    Column("slower"),
    Column("p"),
)
FAULT_COLUMNS = (
    Column("fault", left=True, identity=True),
    Column("host", left=True),
    Column("what is wrong", left=True, wrap=40),
)
RESULT_COLUMNS = (
    Column("host", left=True, identity=True),
    Column("rows"),
    Column("exit code"),
    Column("shard", left=True, wrap=40),
)
ROUND_COLUMNS = (
    Column("round", identity=True),
    Column("host", left=True),
    Column("peer", left=True),
)
ROW_NAMES = ("host", "device", "test", "slower", "p", "clock", "reason")


def render_judgement(judged: Judgement, format: str, screen: Screen = WIDE) -> str:
    """Render *judged*; csv has a row for each finding, and json everything."""
    if format == "json":
        return to_json(judgement_data(judged), screen.ascii)
    if format == "csv":
        return render([_all_findings(judged)], format, screen)
    most = MOST_ROWS if format == "table" else max(MOST_ROWS, len(judged.bad) + len(judged.faults))
    return render(list(_tables(judged, most)), format, screen)


def judgement_data(judged: Judgement) -> dict[str, Any]:
    """Return *judged* as data for JSON, with the slowness of every device in every test."""
    names = [*(test.test for test in judged.tests)]
    lines = judged.slowness.tolist() if judged.slowness is not None else []
    return {
        "schema": SCHEMA,
        "outcome": judged.outcome,
        "reasons": judged.reasons,
        "device": judged.device,
        "hosts_expected": judged.expected,
        "hosts_judged": judged.judged,
        "rows": judged.rows,
        "rule": {name: getattr(judged.rule, name) for name in ("alpha", "slow", "margin", "power")},
        "faults": [{"kind": f.kind, "host": f.host, "message": f.message} for f in judged.faults],
        "bad": [_row(bad) for bad in judged.bad],
        "tests": [
            {
                "test": t.test,
                "cases": t.cases,
                "noise": t.scatter,
                "detectable": t.detectable,
                "slower_than_expected": t.shift,
                "slow": t.slow,
            }
            for t in judged.tests
        ],
        "units": [
            {
                "host": unit.host,
                "device": unit.device,
                "slower": dict(zip(names, line, strict=True)),
            }
            for unit, line in zip(judged.units, lines, strict=True)
        ],
        "pairs": _pairs_data(judged),
        "notes": judged.notes,
    }


def _pairs_data(judged: Judgement) -> dict[str, Any] | None:
    if judged.pairs is None:
        return None
    slow = [
        {"hosts": part.hosts, "test": part.test, "slower": part.slower, "p": part.p}
        for part in judged.pairs.slow
    ]
    missing = [list(pair) for pair in judged.pairs.missing]
    tests = [
        {"test": test.test, "detectable": math.expm1(min(test.detectable, 30.0))}
        for test in judged.pairs.tests
    ]
    return {"measured": judged.pairs.pairs, "missing": missing, "slow": slow, "tests": tests}


def headline(judged: Judgement) -> str:
    """Write `BAD. 2 hosts slow or failing. 1,000 of 1,000 hosts judged, …`."""
    reasons = f" {'; '.join(judged.reasons)}." if judged.reasons else ""
    hosts = f"{judged.judged:,} of {len(judged.expected):,} expected hosts judged"
    rows = f"{judged.rows:,} rows"
    device = f", {judged.device}" if judged.device else ""
    return f"{judged.outcome.upper()}.{reasons} {hosts}, {rows}{device}"


def render_results(results: Sequence[HostResult], format: str, screen: Screen = WIDE) -> str:
    """Render what became of each host of a fleet run."""
    rows = [{"host": r.host, "rows": r.rows, "code": r.code, "reason": r.reason} for r in results]
    cells = [[r.host, f"{r.rows:,}", str(r.code), r.reason or "whole"] for r in results]
    return render([Table(fill(RESULT_COLUMNS, cells), rows=rows)], format, screen)


def render_rounds(
    rounds: Sequence[Sequence[tuple[str, str]]], format: str, screen: Screen = WIDE
) -> str:
    """Render the rounds of a tournament, a row for each pair."""
    rows = [
        {"round": i, "host": a, "peer": b} for i, pairs in enumerate(rounds, 1) for a, b in pairs
    ]
    cells = [[str(row["round"]), str(row["host"]), str(row["peer"])] for row in rows]
    return render([Table(fill(ROUND_COLUMNS, cells), rows=rows)], format, screen)


def _tables(judged: Judgement, most: int) -> list[Table]:
    tables = []
    if judged.faults:
        cells = [[f.kind, f.host or "–", f.message] for f in judged.faults[:most]]
        tables.append(Table(fill(FAULT_COLUMNS, cells), notes=_left(len(judged.faults), most)))
    devices = _by_device(judged.bad)
    if devices:
        cells = [_cells(bads) for bads in devices[:most]]
        tables.append(Table(fill(BAD_COLUMNS, cells), notes=_left(len(devices), most)))
    if judged.pairs is not None and judged.pairs.slow:
        cells = [
            [" – ".join(part.hosts), part.test, _percent(part.slower), f"{part.p:.1g}"]
            for part in judged.pairs.slow[:most]
        ]
        tables.append(Table(fill(PAIR_COLUMNS, cells), notes=_left(len(judged.pairs.slow), most)))
    notes = notes_of(*judged.notes, _rule_text(judged))
    if judged.tests:
        cells = [_test_cells(judged, i) for i in range(len(judged.tests))]
        tables.append(Table(fill(TEST_COLUMNS, cells), notes=notes))
    tables = tables or [Table(notes=notes)]
    return [replace(tables[0], lead=(headline(judged),)), *tables[1:]]


def _all_findings(judged: Judgement) -> Table:
    """Return a table whose rows are the bad devices, the faults, and the tests that are slow."""
    rows = [_row(bad) for bad in judged.bad]
    empty = dict.fromkeys(ROW_NAMES, "")
    rows += [empty | {"host": f.host, "reason": f"{f.kind}: {f.message}"} for f in judged.faults]
    rows += [
        empty | {"host": " – ".join(p.hosts), "test": p.test, "slower": p.slower, "p": p.p}
        for p in (judged.pairs.slow if judged.pairs else ())
    ]
    slow = [t for t in judged.tests if t.slow]
    rows += [empty | {"test": t.test, "slower": t.shift, "reason": "fleet"} for t in slow]
    return Table(rows=rows, names=ROW_NAMES)


def _row(bad: Bad) -> dict[str, Any]:
    return {
        "host": bad.unit.host,
        "device": bad.unit.device,
        "test": bad.test,
        "slower": bad.slower,
        "p": bad.p,
        "clock": bad.clock,
        "reason": bad.reason,
    }


def _by_device(bads: Sequence[Bad]) -> list[list[Bad]]:
    """Return the findings of each device, those of the slowest device first."""
    groups: dict[object, list[Bad]] = {}
    for bad in bads:
        groups.setdefault(bad.unit, []).append(bad)
    return list(groups.values())


def _cells(bads: Sequence[Bad]) -> list[str]:
    """Return one line for a device: that of all tests if it is slow in all, else of the worst."""
    first = next((bad for bad in bads if bad.test == ALL), bads[0])
    others = len({bad.test for bad in bads} - {first.test, ALL})
    more = f" and {others} more" if others and first.test != ALL else ""
    because = next((bad.reason for bad in bads if bad.reason), "")
    if not because and first.clock is not None and first.slower is not None:
        explains = -first.clock > first.slower / 2
        because = "its SM clock is lower" if explains else "not its SM clock"
    return [
        first.unit.host,
        str(first.unit.device),
        shorten(first.test, NAME) + more,
        _percent(first.slower),
        "–" if first.p is None else f"{first.p:.1g}",
        _percent(first.clock),
        shorten(because, NAME),
    ]


def _test_cells(judged: Judgement, index: int) -> list[str]:
    test = judged.tests[index]
    slow = " SLOW" if test.slow else ""
    return [
        shorten(test.test, NAME),
        str(test.cases),
        f"{test.scatter * 100:.2f} %" if test.cases else "–",
        _bounded(test.detectable) if test.cases else "–",
        f"{_percent(test.shift)}{slow}",
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value * 100:+.1f} %"


def _bounded(value: float) -> str:
    return f"{value * 100:.1f} %" if value < 1 else "over 100 %"


def _left(count: int, most: int) -> tuple[tuple[str, str], ...]:
    return notes_of(f"{count - most} more: --format json has them") if count > most else ()


def _rule_text(judged: Judgement) -> str:
    rule = judged.rule
    return (
        f"a device is bad if it is over {rule.margin * 100:g} % slower than its peers and a fleet "
        f"without bad devices would have one with a probability of at most {rule.alpha * 100:g} %"
    )
