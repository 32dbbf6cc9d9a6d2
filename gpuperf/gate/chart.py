"""Draw the pairs of a gate: a row for each case, worst first, with the slowdown in each pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.gate.rule import Pairs, Rule, moved
from gpuperf.gate.verdict import CaseVerdict, GateReport
from gpuperf.gate.wording import (
    conditions,
    counts,
    mean_change,
    names_of,
    percent,
    rule_text,
    words_of,
    worst_first,
)
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import Names
from gpuperf.show.contract import contracts_text
from gpuperf.show.figure import COLOURS, DPI, FAINT, GRID, INK, figure

WIDTH, NARROWEST, ROW, GAP = 11.0, 4.2, 0.3, 0.1  # inches
MOST, MOST_SENTINELS = 40, 6  # rows of cases, and of sentinels
MOST_DOTS = 1000  # dots of a row
NAME = 44  # characters of a case
LONGEST = 140  # characters of a line of words
TITLE, FOOTER, BESIDE = 84, 350, 42  # characters of the title, the footer, the words beside a row
NEAR = 0.5  # inches between two ticks whose labels would touch
SPREAD = 0.3  # of a row, to either side: from the first pair above to the last below
FARTHEST = 20.0  # log ratio that an axis can show
LEAST = 2.0  # multiple of the least margin to which the axis reaches at least
BEYOND = 2.5  # multiple of the largest mean or interval beyond which a dot is drawn at the edge
LINEAR, KNEE = 0.3, 0.05  # an axis beyond a slowdown of LINEAR is logarithmic from KNEE on
STEPS = tuple(s * 10.0**p for p in range(10) for s in (1, 2, 5))  # percent
COLOUR = {
    "REGRESSED": COLOURS[1],
    "IMPROVED": COLOURS[2],
    "INCONCLUSIVE": COLOURS[4],
    "UNCHANGED": "#5f7486",
    "NOT_COMPARABLE": INK,
}
SENTINEL, BAND = "#a0a0a0", "#e9eef3"
MEAN: dict[str, Any] = {"marker": "|", "markersize": 9, "markeredgewidth": 1.8}
Dots = tuple[float, ...]  # slowdowns, as log ratios


@dataclass(frozen=True)
class PairRow:
    """One row of the chart: hollow and filled dots, the mean with its interval, the margin (all log
    ratios of head to base), and the words beside it; `loud` rows are bold."""

    name: str
    colour: str
    hollow: Dots
    filled: Dots
    margin: float
    mean: float | None
    low: float | None
    high: float | None
    words: str
    loud: bool = False

    @property
    def marks(self) -> list[float]:
        """Return the mean and the ends of its interval, those that are known and can be drawn."""
        known = (v for v in (self.mean, self.low, self.high) if v is not None)
        return [v for v in known if abs(v) < FARTHEST]


def draw_pairs(report: GateReport, paths: Sequence[Path]) -> None:
    """Draw *report* to each of *paths*, PNG or SVG by suffix.

    Raises: UsageError for another suffix, an unwritable path, and a report without any times.
    """
    rows, sentinels = rows_of(report)
    title = shorten(f"Gate {report.outcome}: {counts(report.cases, words_of(report))}", TITLE)
    lines = _lines(report, names_of(report, NAME), len(report.cases) - len(rows))
    with figure(paths, title, lines, [_reading(report)], WIDTH) as frame:
        frame.legend(_handles(report, bool(sentinels)))
        every = [*rows, *sentinels]
        places = [*range(len(rows)), *(len(rows) + 0.4 + i for i in range(len(sentinels)))]
        (axes,) = frame.stack((places[-1] + 1) * ROW)
        _scale(axes, every)
        for place, row in zip(places, every, strict=True):
            _draw(axes, place, row)
        if rows and sentinels:
            axes.axhline(len(rows) - 0.3, color=GRID, linewidth=1)
        _name(axes, places, every)
        frame.fit(least=NARROWEST)
        _thin_out(axes)


def rows_of(report: GateReport) -> tuple[list[PairRow], list[PairRow]]:
    """Return the rows of the worst cases, in the order of the table, and those of the sentinels.

    Raises: UsageError for a report without any times.
    """
    names = names_of(report, NAME)
    rows = [_row(case, report, names) for case in worst_first(report)[:MOST]]
    sentinels = [_sentinel(name, report, names) for name in list(report.sentinels)[:MOST_SENTINELS]]
    if not any(row.hollow or row.filled for row in (*rows, *sentinels)):
        raise UsageError("no case has a time on both sides: nothing to draw", "see the table")
    return rows, sentinels


def _row(case: CaseVerdict, report: GateReport, names: Names) -> PairRow:
    judged, loud = case.judged, case.judged.verdict == "REGRESSED"
    hollow, filled, margin = _dots(case, report.rule)
    cause = f": {clean(case.cause.kind)}" if case.cause is not None and loud else ""
    word = "" if judged.verdict == "UNCHANGED" else f"  {words_of(report)[judged.verdict]}{cause}"
    mean, low, high = (_logarithm(v) for v in (judged.change, judged.low, judged.high))
    change = "" if judged.change is None else percent(judged.change)
    words = shorten(f"{change}{word}".strip(), BESIDE)
    colour = COLOUR[judged.verdict]
    return PairRow(
        names.of(case.case), colour, hollow, filled, margin, mean, low, high, words, loud
    )


def _dots(case: CaseVerdict, rule: Rule) -> tuple[Dots, Dots, float]:
    """Return the hollow dots (screening pairs, or processes of a base run), the filled dots
    (confirming pairs, or processes of a head run), and the margin, all as log ratios."""
    if case.evidence is not None:
        screen, confirm = case.evidence.screen, case.evidence.confirm
        margin = _margin(case.evidence.judged, rule, case.evidence.margin)
        return _ratios(screen), _ratios(confirm) if confirm else (), margin
    if case.sets is not None and case.sets.sound:
        middle = math.fsum(math.log(v) for v in case.sets.base) / len(case.sets.base)
        sides = (case.sets.base, case.sets.head)
        hollow, filled = (tuple(math.log(v) - middle for v in side) for side in sides)
        pairs = Pairs(case.sets.base, case.sets.base)
        return hollow, filled, _margin(pairs, rule, max(rule.margin, case.sets.margin or 0.0))
    return (), (), math.log1p(rule.margin)


def _ratios(pairs: Pairs) -> Dots:
    """Return the log ratio of head to base of each pair that has a time on both sides."""
    both = zip(pairs.base, pairs.head, strict=True)
    timed = ((b, h) for b, h in both if 0 < b < math.inf and 0 < h < math.inf)
    return tuple(math.log(h) - math.log(b) for b, h in timed)


def _margin(pairs: Pairs, rule: Rule, own: float | None) -> float:
    known = bool(pairs.base) and all(0 < v < math.inf for v in pairs.base)
    return rule.margin_of(pairs, own) if known else math.log1p(rule.margin)


def _sentinel(name: str, report: GateReport, names: Names) -> PairRow:
    from scipy.special import stdtrit

    pairs, rule = report.sentinels[name], report.rule
    dots = _ratios(pairs)
    mean = low = high = None
    change = mean_change(pairs)
    if change is not None:
        mean = math.log1p(change)
        spread = math.sqrt(math.fsum((d - mean) ** 2 for d in dots) / (len(dots) - 1))
        reach = float(stdtrit(len(dots) - 1, 0.975)) * spread / math.sqrt(len(dots))
        low, high = mean - reach, mean + reach
    bad = moved(pairs, rule, len(report.sentinels)) is not None
    words = f"{percent(change)}  sentinel{' moved' if bad else ''}"
    colour = COLOURS[1] if bad else SENTINEL
    return PairRow(
        names.of(name), colour, (), dots, _margin(pairs, rule, None), mean, low, high, words, bad
    )


def _logarithm(change: float | None) -> float | None:
    return math.log1p(change) if change is not None and -1 < change < math.inf else None


def _name(axes: Any, places: Sequence[float], rows: Sequence[PairRow]) -> None:
    """Write the names of the rows beside the y axis, and the caption of the x axis."""
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    axes.set_ylim(places[-1] + 0.5, -0.5)
    axes.set_yticks(places, [row.name for row in rows], fontsize=9)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_color(row.colour if row.loud else FAINT if row.colour == SENTINEL else INK)
        label.set_fontweight("bold" if row.loud else "normal")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time of the head over that of the base, less 1", fontsize=10)


def _thin_out(axes: Any) -> None:
    """Remove ticks of the x axis whose labels would touch that of a tick nearer to 0."""
    low, high = axes.get_xlim()
    ticks: dict[float, float] = {}
    for tick in sorted((t for t in axes.get_xticks() if low <= t <= high), key=abs):
        at = axes.transData.transform((tick, 0))[0]
        if all(abs(at - other) > NEAR * DPI for other in ticks.values()):
            ticks[float(tick)] = at
    axes.set_xticks(sorted(ticks))


def _scale(axes: Any, rows: Sequence[PairRow]) -> None:
    """Set the limits of the x axis around all means, intervals, and the dots not `BEYOND`."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    least = min(LEAST * min(row.margin for row in rows), FARTHEST)
    needed = [least, -least, *(value for row in rows for value in row.marks)]
    most = BEYOND * max(map(abs, needed))
    dots = [dot for row in rows for dot in (*row.hollow, *row.filled) if abs(dot) <= most]
    low, high = (100 * math.expm1(end([*needed, *dots])) for end in (min, max))
    if max(-low, high) > 100 * LINEAR:
        axes.set_xscale("symlog", linthresh=100 * KNEE, linscale=1.2)
        low, high = 1.25 * low, 1.25 * high
        axes.set_xticks([sign * step for step in STEPS for sign in (-1, 1)] + [0.0])
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:+,g} %" if v else "0"))
    axes.tick_params(axis="x", labelsize=9)
    axes.grid(axis="x")


def _draw(axes: Any, place: float, row: PairRow) -> None:
    """Draw one row: the margin, the dots, the mean with its interval, and the words beside it."""
    from matplotlib.patches import Rectangle

    left, right = (100 * math.expm1(sign * row.margin) for sign in (-1, 1))
    axes.add_patch(Rectangle((left, place - 0.5), right - left, 1, color=BAND, zorder=0))
    _draw_dots(axes, place, row)
    low, high = axes.get_xlim()
    ends = [
        min(max(100 * math.expm1(v), low), high)
        for v in (row.low, row.high)
        if v is not None and abs(v) < FARTHEST
    ]
    if len(ends) == 2:
        axes.plot(ends, [place] * 2, color=INK, linewidth=1.6, zorder=4, solid_capstyle="butt")
    if row.mean is not None and abs(row.mean) < FARTHEST:
        axes.plot([100 * math.expm1(row.mean)], [place], color=INK, zorder=4, **MEAN)
    axes.annotate(
        row.words,
        (1, place),
        (GAP * 72, 0),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        fontsize=9,
        va="center",
        annotation_clip=False,
        color=row.colour if row.loud or row.words.endswith("improved") else FAINT,
        fontweight="bold" if row.loud else "normal",
    )


def _draw_dots(axes: Any, place: float, row: PairRow) -> None:
    """Draw the dots of a row, the first pair at its top and the last at its bottom; a dot beyond
    the edge of the axis is an arrow."""
    low, high = axes.get_xlim()
    dots = (*row.hollow, *row.filled)[:MOST_DOTS]
    alike: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for i, dot in enumerate(dots):
        value = 100 * math.expm1(min(dot, FARTHEST))
        marker = "<" if value < low else ">" if value > high else "o"
        at = (min(max(value, low), high), place + SPREAD * (2 * i / max(1, len(dots) - 1) - 1))
        alike.setdefault((marker, i < len(row.hollow)), []).append(at)
    for (marker, hollow), points in alike.items():
        axes.plot(
            *zip(*points, strict=True),
            linestyle="none",
            marker=marker,
            markersize=3.6,
            color=row.colour,
            markerfacecolor="white" if hollow else row.colour,
            markeredgewidth=0.8,
            alpha=0.75,
            clip_on=False,
            zorder=3,
        )


def _handles(report: GateReport, sentinels: bool) -> list[Any]:
    """Return the entries of the legend: what dots, lines and the band mean."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    paired = report.kind == "ab"
    dot: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 4.5}
    hollow, filled = (
        ("pair of the screen", "pair that confirms")
        if paired
        else ("process of the base", "process of the head")
    )
    handles = [
        Line2D([], [], markerfacecolor="white", color=INK, **dot, label=hollow),
        Line2D([], [], color=INK, **dot, label=filled),
        Line2D([], [], color=INK, linewidth=1.6, label="mean, 95 %", **MEAN),
        Patch(color=BAND, label="margin"),
    ]
    if sentinels:
        label = "sentinel: torch's own operator"
        handles.append(Line2D([], [], color=SENTINEL, **dot, label=label))
    return handles


def _lines(report: GateReport, names: Names, left: int) -> list[str]:
    """Describe what was compared, by which rule, and how many cases are not drawn."""
    base_head, suite = conditions(report, names)[:2]
    suite += f"; the {MOST} worst of {left + MOST:,} cases" if left > 0 else ""
    return [shorten(text, LONGEST) for text in (base_head, suite, rule_text(report))]


def _reading(report: GateReport) -> str:
    """Describe how to read the dots, and how they were measured."""
    more = [contracts_text([report.contract]), f"gate {clean(report.id)}"]
    if report.kind == "ab":
        more = [
            *(
                "pairs in order of time, from top to bottom",
                "mean: of the confirming pairs, if any",
            ),
            *more,
        ]
    return shorten(" · ".join([*more, f"gpuperf {clean(report.gpuperf)}"]), FOOTER)
