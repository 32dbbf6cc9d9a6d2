"""Render a history: all cases in a line each, or one with its points and steps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gpuperf.history.study import Point, Segment, Series
from gpuperf.model.changepoints import ALPHA, LEAST, SIDE, ChangePoint
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import Names
from gpuperf.show.data import to_json
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.units import format_time

LONGEST = 72  # characters of a case, and of a run's id
LONGEST_FACT = 48
MOST_FACTS = 4  # by name where an environment changed
MOST_POINTS = 40  # in a table
MOST_NOTES = 8
MOVED = "†: the runs after the step are of another host, whose card may be what differs"
SCHEMA = 1  # of the JSON of one case
LIST_COLUMNS = (
    Column("case", left=True, wrap=24),
    Column("points", keep=3),
    Column("first", left=True, keep=2),
    Column("last", left=True, keep=4),
    Column("segments", keep=2),
    Column("time"),
    Column("change"),
    Column("steps", left=True, wrap=16),
)
SEGMENT_COLUMNS = (
    Column("segment", left=True),
    Column("points", keep=3),
    Column("first", left=True, keep=2),
    Column("last", left=True),
    Column("time"),
    Column("steps"),
    Column("what changed", left=True, keep=4, wrap=24),
)
POINT_COLUMNS = (
    Column("date", left=True),
    Column("run", left=True, keep=3, wrap=20),
    Column("segment"),
    Column("time"),
    Column("middle half", keep=4),
    Column("processes", keep=2),
    Column("step"),
)
STEP_COLUMNS = (
    Column("step", left=True),
    Column("change"),
    Column("95 %"),
    Column("p", keep=3),
    Column("q", keep=4),
    Column("segment", keep=5),
    Column("last run before", left=True, keep=1, wrap=20),
    Column("first run after", left=True, keep=2, wrap=20),
)
POINT_NAMES = (
    "date",
    "run",
    "segment",
    "median_s",
    "low_s",
    "high_s",
    "processes",
    "step_date",
    "step_change",
    "step_low",
    "step_high",
    "step_p",
    "step_q",
)


def render_list(series: Sequence[Series], format: str, screen: Screen = WIDE) -> str:
    """A line a case that has points; JSON and CSV have those that were never measured too."""
    rows = [_list_row(each) for each in series]
    if format in ("json", "csv"):
        heads = [column.head for column in LIST_COLUMNS]
        return render([Table(rows=rows, names=heads)], format, screen)
    names = Names((each.case for each in series), LONGEST)
    timed = [each for each in series if each.points]
    cells = [_list_cells(each, _foreign(names.of(each.case))) for each in timed]
    without = len(series) - len(timed)
    notes = [
        *([f"cases without a point, not listed: {without:,}"] if without else []),
        *(
            f"all of {_foreign(op)}: {_foreign(axes, 2 * LONGEST)}"
            for op, axes in names.fixed.items()
        ),
        rule_text(series),
        *([MOVED] if any(s[0].moved(s[1]) for s in map(last_step, series) if s) else []),
        f"change: from the first {SIDE} points of the last segment to its last {SIDE}, no verdict",
        *_left_out(series, names),
    ]
    return render([Table(fill(LIST_COLUMNS, cells), notes=notes_of(*notes))], format, screen)


def render_show(series: Series, format: str, screen: Screen = WIDE) -> str:
    """The points of one case, its segments and its steps. As csv a row a point."""
    if format == "json":
        return to_json(_shown(series), screen.ascii)
    if format == "csv":
        rows = [
            {**_point_row(series, segment, i), **_step_row(segment, i)}
            for segment in series.segments
            for i in range(len(segment.points))
        ]
        rows.sort(key=lambda row: row["date"])
        return render([Table(rows=rows, names=POINT_NAMES)], format, screen)
    tables = (_points_table(series), _segments_table(series), _steps_table(series))
    return render(tables, format, screen)


def rule_text(series: Sequence[Series]) -> str:
    """How steps were sought."""
    segments = sum(segment.told for each in series for segment in each.segments)
    if not segments:
        return f"no steps were sought: no segment has {LEAST} points"
    together = f"{segments} segments together" if segments > 1 else "one segment"
    return (
        f"steps: what neither chance nor a steady drift explains, sought in {together} at a false "
        f"discovery rate of {ALPHA * 100:g} %"
    )


def marked_text(segment: Segment, step: ChangePoint) -> str:
    """`+3.1 % †`, where the host is another one too."""
    return _percent(step.change) + (" †" if segment.moved(step) else "")


def changed_text(changed: Sequence[str], most: int = MOST_FACTS) -> str:
    """`torch 2.11.0 → 2.12.0`, the first few facts."""
    told = [shorten(clean(fact), LONGEST_FACT) for fact in changed[:most]]
    more = len(changed) - len(told)
    return ", ".join([*told, *([f"{more} more"] if more else [])])


def _percent(fraction: float) -> str:
    return f"{round(fraction * 100, 1) + 0.0:+.1f} %"  # without the sign of a nought


def _foreign(text: str, most: int = LONGEST) -> str:
    """*text* of other origin, that no terminal obeys; the renderer escapes it for markdown."""
    return shorten(clean(text), most)


def _left_out(series: Sequence[Series], names: Names) -> list[str]:
    """Which readings are no points, and why."""
    notes = []
    for each in series:
        if each.left_out:
            told = ", ".join(f"{count} × {_foreign(why)}" for why, count in each.left_out.items())
            notes.append(f"left out of {_foreign(names.of(each.case))}: {told}")
    more = len(notes) - MOST_NOTES
    return notes if more <= 0 else [*notes[:MOST_NOTES], f"left out of {more} cases more"]


def _list_row(series: Series) -> dict[str, Any]:
    points, last = series.points, series.last
    step = last_step(series)
    return {
        "case": clean(series.case),
        "points": len(points),
        "first": points[0][0].when.isoformat() if points else None,
        "last": points[-1][0].when.isoformat() if points else None,
        "segments": len(series.segments),
        "last_median_s": points[-1][0].median_s if points else None,
        "last_segment_change": last.change if last else None,
        "steps": sum(len(segment.steps) for segment in series.segments),
        "last_step": step[0].points[step[1].at].when.isoformat() if step else None,
        "last_step_change": step[1].change if step else None,
        "last_step_low": step[1].low if step else None,
        "last_step_high": step[1].high if step else None,
        "last_step_q": step[1].q if step else None,
        "last_step_another_host": step[0].moved(step[1]) if step else None,
        "left_out": sum(series.left_out.values()),
    }


def last_step(series: Series) -> tuple[Segment, ChangePoint] | None:
    """The latest by date."""
    steps = [(segment, step) for segment in series.segments for step in segment.steps]
    return max(steps, key=lambda both: both[0].points[both[1].at].when, default=None)


def _list_cells(series: Series, name: str) -> list[str]:
    points, last, step = series.points, series.last, last_step(series)
    if last is None:
        return [name, "0", "–", "–", "0", "–", "–", "–"]
    count = sum(len(segment.steps) for segment in series.segments)
    told = "–" if not any(segment.told for segment in series.segments) else "none"
    if step is not None:
        latest = f"{_day(step[0].points[step[1].at].when)} {marked_text(*step)}"
        told = latest if count == 1 else f"{count}, last {latest}"
    return [
        name,
        str(len(points)),
        _day(points[0][0].when),
        _day(points[-1][0].when),
        str(len(series.segments)),
        format_time(points[-1][0].median_s),
        "–" if last.change is None else _percent(last.change),
        told,
    ]


def _points_table(series: Series) -> Table:
    numbers = {id(segment): i for i, segment in enumerate(series.segments, 1)}
    steps = {
        id(segment.points[step.at]): marked_text(segment, step)
        for segment in series.segments
        for step in segment.steps
    }
    shown = series.points[-MOST_POINTS:]
    cells = [
        [
            f"{point.when:%Y-%m-%d %H:%M}",
            _foreign(point.run),
            str(numbers[id(segment)]),
            format_time(point.median_s),
            _half(point),
            str(point.processes),
            steps.get(id(point), ""),
        ]
        for point, segment in shown
    ]
    earlier = len(series.points) - len(shown)
    notes = [f"{earlier} earlier points: --format csv has them"] if earlier else []
    notes += _left_out([series], Names([series.case], LONGEST))
    title = _foreign(series.case, 2 * LONGEST)
    return Table(fill(POINT_COLUMNS, cells), title, notes=notes_of(*notes))


def _segments_table(series: Series) -> Table:
    cells = [
        [
            str(i),
            str(len(segment.points)),
            _day(segment.points[0].when),
            _day(segment.points[-1].when),
            format_time(segment.points[-1].median_s),
            str(len(segment.steps)) if segment.told else "–",
            _foreign(changed_text(segment.changed), 4 * LONGEST),
        ]
        for i, segment in enumerate(series.segments, 1)
    ]
    return Table(fill(SEGMENT_COLUMNS, cells))


def _steps_table(series: Series) -> Table:
    notes = [rule_text([series])]
    if any(segment.moved(step) for segment in series.segments for step in segment.steps):
        notes.append(MOVED)
    cells = [
        [
            _day(segment.points[step.at].when),
            marked_text(segment, step),
            f"{step.low * 100:+.1f} … {step.high * 100:+.1f}",
            f"{step.p:.2g}",
            f"{step.q:.2g}",
            str(i),
            *(_foreign(segment.points[at].run) for at in (step.at - 1, step.at)),
        ]
        for i, segment in enumerate(series.segments, 1)
        for step in segment.steps
    ]
    if not cells and any(segment.told for segment in series.segments):
        notes[:0] = ["no step was found"]
    return Table(fill(STEP_COLUMNS, cells), notes=notes_of(*notes))


def _shown(series: Series) -> dict[str, Any]:
    """One case whole, for JSON."""
    segments = [
        {
            "environment": {
                clean(name): clean(value)
                for name, value in (*segment.environment.fixed, *segment.environment.soft)
            },
            "changed": [clean(fact) for fact in segment.changed],
            "change": segment.change,
            "steps": [
                {
                    **_step_row(segment, step.at),
                    "another_host": segment.moved(step),
                    "run": clean(segment.points[step.at].run),
                    "run_before": clean(segment.points[step.at - 1].run),
                }
                for step in segment.steps
            ],
            "points": [_point_row(series, segment, i) for i in range(len(segment.points))],
        }
        for segment in series.segments
    ]
    left_out = {clean(why): count for why, count in series.left_out.items()}
    return {
        "schema": SCHEMA,
        "case": clean(series.case),
        "left_out": left_out,
        "segments": segments,
    }


def _point_row(series: Series, segment: Segment, index: int) -> dict[str, Any]:
    point = segment.points[index]
    return {
        "date": point.when.isoformat(),
        "run": clean(point.run),
        "segment": series.segments.index(segment) + 1,
        "median_s": point.median_s,
        "low_s": point.low_s,
        "high_s": point.high_s,
        "processes": point.processes,
    }


def _step_row(segment: Segment, index: int) -> dict[str, Any]:
    """The step that begins with a point; of others the same keys without values."""
    step = next((step for step in segment.steps if step.at == index), None)
    return {
        "step_date": segment.points[index].when.isoformat() if step else None,
        "step_change": step.change if step else None,
        "step_low": step.low if step else None,
        "step_high": step.high if step else None,
        "step_p": step.p if step else None,
        "step_q": step.q if step else None,
    }


def _half(point: Point) -> str:
    low, high = (value / point.median_s - 1 for value in (point.low_s, point.high_s))
    return f"{low * 100:+.1f} … {high * 100:+.1f} %"


def _day(when: datetime) -> str:
    return f"{when:%Y-%m-%d}"
