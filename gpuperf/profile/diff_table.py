"""Render two profiles beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuperf.model.record import Run
from gpuperf.model.text import clean, shorten
from gpuperf.profile.breakdown import PARTS, profiles
from gpuperf.profile.diff import Change, Difference, differences
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_time

MOST_ROWS, LONGEST, LONGEST_CAUSE = 25, 48, 90
COLUMNS = (
    Column("operator", left=True),
    Column("of", left=True, keep=2, wrap=16),
    Column("before"),
    Column("after"),
    Column("change"),
    Column("of the step", keep=4),
    Column("cause", left=True, keep=3, wrap=24),
)
PART_COLUMNS = (
    Column("part of the step", left=True),
    Column("before"),
    Column("after"),
    Column("change"),
)


def render_changes(before: Run, after: Run, format: str, screen: Screen = WIDE) -> str:
    """Render what changed from profile *before* to *after*.

    Raises: UsageError if nothing in the two matches.
    """
    return render_changed(differences(profiles(before), profiles(after)), format, screen)


def render_changed(found: Sequence[Difference], format: str, screen: Screen = WIDE) -> str:
    """Region by region; as json or csv, a row a change."""
    return render([table for one in found for table in _difference(one)], format, screen)


def _difference(one: Difference) -> tuple[Table, Table]:
    before, after = one.before, one.after
    title = (
        f"{shorten(clean(after.region.region), LONGEST)}: {format_time(before.step_s)} → "
        f"{format_time(after.step_s)} ({(one.ratio - 1) * 100:+.1f} %)"
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
    shown = one.changes[:MOST_ROWS]
    left = len(one.changes) - len(shown)
    notes = [f"{left} operators more: --format csv has all"] if left else []
    notes += [] if shown else ["no operator changed by 0.5 % of the step"]
    columns = fill(COLUMNS, [_cells(one, change) for change in shown])
    rows = [_row(one, change) for change in one.changes]
    return (
        Table(fill(PART_COLUMNS, parts), title),
        Table(columns, notes=notes_of(*notes), rows=rows, names=("operator",)),
    )


def _cells(one: Difference, change: Change) -> list[str]:
    name = shorten(clean(change.operator).removeprefix("aten::"), LONGEST)
    return [
        name + (" (backward)" if change.backward else ""),
        shorten(clean(change.of), LONGEST),
        "–" if change.before_s is None else format_time(change.before_s),
        "–" if change.after_s is None else format_time(change.after_s),
        _signed(change.delta_s),
        f"{change.delta_s / one.before.step_s * 100:+.1f} %",
        shorten(clean(change.cause), LONGEST_CAUSE),
    ]


def _signed(seconds: float) -> str:
    return ("+" if seconds >= 0 else "−") + format_time(abs(seconds))


def _row(one: Difference, change: Change) -> dict[str, Any]:
    return {
        "region": one.after.region.region,
        "operator": change.operator,
        "of": change.of,
        "backward": change.backward,
        "before_s": change.before_s,
        "after_s": change.after_s,
        "delta_s": change.delta_s,
        "cause": change.cause,
    }
