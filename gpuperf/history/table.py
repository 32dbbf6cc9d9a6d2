"""Render a history: a line for each case, or one case with its points and change points."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuperf.history.study import Point, Segment, Series
from gpuperf.model.changepoints import ALPHA, LEAST, SIDE, ChangePoint
from gpuperf.model.text import shorten
from gpuperf.show.axes import Names
from gpuperf.show.data import to_json
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_time

LONGEST = 72  # characters of a case, and of a run's id
LONGEST_FACT = 48
MOST_FACTS = 4  # changed facts of an environment that are listed
MOST_POINTS = 40  # points in a table
MOST_NOTES = 8
MOVED = "†: the runs after the change are of another host, whose card may be what differs"
SCHEMA = 1  # of the JSON of one case
LIST_COLUMNS = (
    Column("case", left=True, wrap=24),
    Column("points", keep=3),
    Column("first", left=True, keep=2),
    Column("last", left=True, keep=4),
    Column("segments", keep=2),
    Column("time"),
    Column("trend"),
    Column("significant changes", left=True, wrap=19),
)
SEGMENT_COLUMNS = (
    Column("segment", left=True),
    Column("points", keep=3),
    Column("first", left=True, keep=2),
    Column("last", left=True),
    Column("time"),
    Column("changes"),
    Column("new environment", left=True, keep=4, wrap=24),
)
POINT_COLUMNS = (
    Column("date", left=True),
    Column("run", left=True, keep=3, wrap=20),
    Column("segment"),
    Column("time"),
    Column("middle half", keep=4),
    Column("processes", keep=2),
    Column("change"),
)
CHANGE_COLUMNS = (
    Column("changed on", left=True),
    Column("by"),
    Column("95 %"),
    Column("p", keep=3),
    Column("q", keep=4),
    Column("segment", keep=5),
    Column("last run before", left=True, keep=1, wrap=20),
    Column("first run after", left=True, keep=2, wrap=20),
)
POINT_NAMES = (
    *("date", "run", "segment", "median_s", "low_s", "high_s", "processes"),
    *("step_date", "step_change", "step_low", "step_high", "step_p", "step_q"),
)


def render_list(series: Sequence[Series], format: str, screen: Screen = WIDE) -> str:
    """Render a line for each case with points; JSON and CSV have the cases without points too."""
    if format in ("json", "csv"):
        return render([Table(rows=[_list_row(each) for each in series])], format, screen)
    names = Names((each.case for each in series), LONGEST)
    timed = [each for each in series if each.points]
    cells = [_list_cells(each, names.of(each.case)) for each in timed]
    without = len(series) - len(timed)
    moved = any(change and change[0].moved(change[1]) for change in (s.last_change for s in series))
    notes = [
        *([f"cases without a point, not listed: {without:,}"] if without else []),
        *(f"all cases of {op}: {shorten(axes, 2 * LONGEST)}" for op, axes in names.fixed.items()),
        f"trend: the median of the last {SIDE} points of the last segment over that of its first "
        f"{SIDE}, untested",
        rule_text(series),
        *([MOVED] if moved else []),
        *_left_out(series, names),
    ]
    return render([Table(fill(LIST_COLUMNS, cells), notes=notes_of(*notes))], format, screen)


def render_show(series: Series, format: str, screen: Screen = WIDE) -> str:
    """Render the points of one case, its segments and its change points; CSV has a row a point."""
    if format == "json":
        return to_json(_case_value(series), screen.ascii)
    if format == "csv":
        rows = [
            {**_point_row(series, segment, i), **_change_row(segment, i)}
            for segment in series.segments
            for i in range(len(segment.points))
        ]
        rows.sort(key=lambda row: row["date"])
        return render([Table(rows=rows, names=POINT_NAMES)], format, screen)
    tables = (_points_table(series), _segments_table(series), _changes_table(series))
    return render(tables, format, screen)


def rule_text(series: Sequence[Series]) -> str:
    """Describe how change points were searched for."""
    segments = sum(segment.searched for each in series for segment in each.segments)
    if not segments:
        return f"no change point was searched for: no segment has {LEAST} points"
    together = f"{segments} segments together" if segments > 1 else "one segment"
    return (
        "significant changes: changes of the level that neither chance nor a steady drift "
        f"explains, in {together} at a false discovery rate of {ALPHA * 100:g} %"
    )


def marked_text(segment: Segment, change: ChangePoint) -> str:
    """Return a change in percent, `+3.1 % †`, with the mark if the host changed too."""
    return _percent(change.change) + (" †" if segment.moved(change) else "")


def interval_text(change: ChangePoint) -> str:
    """Return the 95 % interval of *change* in percent: `+2.8 … +3.4`."""
    return f"{change.low * 100:+.1f} … {change.high * 100:+.1f}"


def changed_text(changed: Sequence[str], most: int = MOST_FACTS) -> str:
    """Return the first *most* facts that changed, `torch 2.11.0 → 2.12.0, 3 more`."""
    facts = [shorten(fact, LONGEST_FACT) for fact in changed[:most]]
    more = len(changed) - len(facts)
    return ", ".join([*facts, *([f"{more} more"] if more else [])])


def _percent(fraction: float) -> str:
    return f"{round(fraction * 100, 1) + 0.0:+.1f} %"  # without the sign of a zero


def _left_out(series: Sequence[Series], names: Names) -> list[str]:
    """Return a note for each case with readings that are in no point: their number and reason."""
    notes = []
    for each in series:
        if each.left_out:
            counts = (f"{n} × {shorten(why, LONGEST)}" for why, n in each.left_out.items())
            notes.append(f"left out of {names.of(each.case)}: {', '.join(counts)}")
    more = len(notes) - MOST_NOTES
    return notes if more <= 0 else [*notes[:MOST_NOTES], f"left out of {more} more cases"]


def _list_row(series: Series) -> dict[str, Any]:
    points, last = series.points, series.points[-1][1] if series.points else None
    segment, change = series.last_change or (None, None)
    return {
        "case": series.case.id,
        "points": len(points),
        "first": points[0][0].when.isoformat() if points else None,
        "last": points[-1][0].when.isoformat() if points else None,
        "segments": len(series.segments),
        "last_median_s": points[-1][0].median_s if points else None,
        "last_segment_change": last.change if last else None,
        "steps": len(series.change_points),
        "last_step": segment.points[change.at].when.isoformat() if segment and change else None,
        "last_step_change": change.change if change else None,
        "last_step_low": change.low if change else None,
        "last_step_high": change.high if change else None,
        "last_step_q": change.q if change else None,
        "last_step_another_host": segment.moved(change) if segment and change else None,
        "left_out": sum(series.left_out.values()),
    }


def _list_cells(series: Series, name: str) -> list[str]:
    points, latest = series.points, series.last_change
    last = points[-1][1]
    changes = "none" if any(segment.searched for segment in series.segments) else "–"
    if latest is not None:
        segment, change = latest
        count = len(series.change_points)
        changes = f"{_day(segment.points[change.at].when)} {marked_text(segment, change)}"
        changes = changes if count == 1 else f"{count}, last {changes}"
    return [
        name,
        str(len(points)),
        _day(points[0][0].when),
        _day(points[-1][0].when),
        str(len(series.segments)),
        format_time(points[-1][0].median_s),
        "–" if last.change is None else _percent(last.change),
        changes,
    ]


def _points_table(series: Series) -> Table:
    numbers = {id(segment): i for i, segment in enumerate(series.segments, 1)}
    changes = {
        id(segment.points[change.at]): marked_text(segment, change)
        for segment, change in series.change_points
    }
    cells = [
        [
            f"{point.when:%Y-%m-%d %H:%M}",
            shorten(point.run, LONGEST),
            str(numbers[id(segment)]),
            format_time(point.median_s),
            _middle_half(point),
            str(point.processes),
            changes.get(id(point), ""),
        ]
        for point, segment in series.points[-MOST_POINTS:]
    ]
    earlier = len(series.points) - len(cells)
    notes = [f"{earlier} earlier points: --format csv has them"] if earlier else []
    notes += _left_out([series], Names([series.case], LONGEST))
    title = shorten(series.case.id, 2 * LONGEST)
    return Table(fill(POINT_COLUMNS, cells), title, notes=notes_of(*notes))


def _segments_table(series: Series) -> Table:
    cells = [
        [
            str(i),
            str(len(segment.points)),
            _day(segment.points[0].when),
            _day(segment.points[-1].when),
            format_time(segment.points[-1].median_s),
            str(len(segment.change_points)) if segment.searched else "–",
            shorten(changed_text(segment.changed), 4 * LONGEST),
        ]
        for i, segment in enumerate(series.segments, 1)
    ]
    return Table(fill(SEGMENT_COLUMNS, cells))


def _changes_table(series: Series) -> Table:
    notes = [rule_text([series])]
    if any(segment.moved(change) for segment, change in series.change_points):
        notes.append(MOVED)
    cells = [
        [
            _day(segment.points[change.at].when),
            marked_text(segment, change),
            interval_text(change),
            f"{change.p:.2g}",
            f"{change.q:.2g}",
            str(i),
            *(shorten(segment.points[at].run, LONGEST) for at in (change.at - 1, change.at)),
        ]
        for i, segment in enumerate(series.segments, 1)
        for change in segment.change_points
    ]
    if not cells and any(segment.searched for segment in series.segments):
        notes[:0] = ["no significant change"]
    return Table(fill(CHANGE_COLUMNS, cells), notes=notes_of(*notes))


def _case_value(series: Series) -> dict[str, Any]:
    """Return one case with all its segments and points, for JSON."""
    segments = [
        {
            "environment": dict(segment.environment.fixed + segment.environment.soft),
            "changed": segment.changed,
            "change": segment.change,
            "steps": [
                {
                    **_change_row(segment, change.at),
                    "another_host": segment.moved(change),
                    "run": segment.points[change.at].run,
                    "run_before": segment.points[change.at - 1].run,
                }
                for change in segment.change_points
            ],
            "points": [_point_row(series, segment, i) for i in range(len(segment.points))],
        }
        for segment in series.segments
    ]
    value = {"schema": SCHEMA, "case": series.case.id, "left_out": series.left_out}
    return {**value, "segments": segments}


def _point_row(series: Series, segment: Segment, index: int) -> dict[str, Any]:
    point = segment.points[index]
    return {
        "date": point.when.isoformat(),
        "run": point.run,
        "segment": series.segments.index(segment) + 1,
        "median_s": point.median_s,
        "low_s": point.low_s,
        "high_s": point.high_s,
        "processes": point.processes,
    }


def _change_row(segment: Segment, index: int) -> dict[str, Any]:
    """Return the change point at point *index* of *segment*; without one, the keys with None."""
    change = next((change for change in segment.change_points if change.at == index), None)
    return {
        "step_date": segment.points[index].when.isoformat() if change else None,
        "step_change": change.change if change else None,
        "step_low": change.low if change else None,
        "step_high": change.high if change else None,
        "step_p": change.p if change else None,
        "step_q": change.q if change else None,
    }


def _middle_half(point: Point) -> str:
    low, high = (value / point.median_s - 1 for value in (point.low_s, point.high_s))
    return f"{low * 100:+.1f} … {high * 100:+.1f} %"


def _day(when: datetime) -> str:
    return f"{when:%Y-%m-%d}"
