"""Render the difference of two profiles, as tables of the step's parts and of its operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.profile.breakdown import PARTS, profiles
from gpuperf.profile.diff import Change, Difference, differences
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_time

MOST_ROWS, LONGEST, LONGEST_CAUSE = 25, 48, 90
SHORT = 26  # characters of an operator on a narrow screen
COLUMNS = (
    Column("operator", left=True),
    Column("of", left=True, keep=6, wrap=16),
    Column("before"),
    Column("after"),
    Column("change"),
    Column("of the step", keep=5),
    Column("cause", left=True, keep=3, wrap=24),
)
PART_COLUMNS = (
    Column("part of the step", left=True),
    Column("before"),
    Column("after"),
    Column("change"),
)


def render_changes(before: Run, after: Run, format: str, screen: Screen = WIDE) -> str:
    """Render the difference between the profiles *before* and *after*.

    Raises: UsageError if they have no region in common.
    """
    pairs = differences(profiles(before), profiles(after))
    return render([table for pair in pairs for table in _tables(pair)], format, screen)


def _tables(pair: Difference) -> tuple[Table, Table]:
    before, after = pair.before, pair.after
    title = (
        f"{shorten(after.region.region, LONGEST)}: {format_time(before.step_s)} → "
        f"{format_time(after.step_s)} ({_signed_percent(pair.ratio - 1)})"
    )
    parts = [
        [
            name,
            format_time(before.parts[name]),
            format_time(after.parts[name]),
            _signed(after.parts[name] - before.parts[name]),
        ]
        for name in PARTS
        if before.parts[name] or after.parts[name]
    ]
    shown = pair.changes[:MOST_ROWS]
    left = len(pair.changes) - len(shown)
    notes = [f"{left} operators more: --format csv has all"] if left else []
    notes += [] if shown else ["no operator changed by 0.5 % of the step"]
    operators, *others = fill(COLUMNS, [_cells(pair, change) for change in shown])
    columns = (replace(operators, short=tuple(map(_short_name, shown))), *others)
    rows = [_row(pair, change) for change in pair.changes]
    return (
        Table(fill(PART_COLUMNS, parts), title),
        Table(columns, notes=notes_of(*notes), rows=rows, names=("operator",)),
    )


def _cells(pair: Difference, change: Change) -> list[str]:
    return [
        shorten(_name(change), LONGEST) + (" (backward)" if change.backward else ""),
        shorten(change.of, LONGEST),
        "–" if change.before_s is None else format_time(change.before_s),
        "–" if change.after_s is None else format_time(change.after_s),
        _signed(change.delta_s),
        _signed_percent(change.delta_s / pair.before.step_s),
        shorten(change.cause, LONGEST_CAUSE),
    ]


def _name(change: Change) -> str:
    return change.operator.removeprefix("aten::")


def _short_name(change: Change) -> str:
    ending = " bwd" if change.backward else ""
    return shorten(_name(change), SHORT - len(ending)) + ending


def _signed_percent(share: float) -> str:
    return f"{share * 100:+.1f} %".replace("-", "−")


def _signed(seconds: float) -> str:
    return ("+" if seconds >= 0 else "−") + format_time(abs(seconds))


def _row(pair: Difference, change: Change) -> dict[str, Any]:
    return {
        "region": pair.after.region.region,
        "operator": change.operator,
        "of": change.of,
        "backward": change.backward,
        "before_s": change.before_s,
        "after_s": change.after_s,
        "delta_s": change.delta_s,
        "cause": change.cause,
    }
