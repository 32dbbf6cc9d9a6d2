"""Draw the pairs of a gate as the SVG of a page: a row for each case, a mark for each pair.

A mark has the number of its case's row in the table beside it (`data-r`), and the times of its pair
as a text (`data-t`), which the script of the page shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from gpuperf.gate.chart import BEYOND, FARTHEST, KNEE, LEAST, LINEAR, STEPS, PairRow, rows_of
from gpuperf.gate.rule import Pairs, Verdict
from gpuperf.gate.verdict import CaseVerdict, GateReport
from gpuperf.gate.wording import percent, words_of, worst_first
from gpuperf.model.text import shorten
from gpuperf.show.html import text
from gpuperf.units import format_time

WIDE, ROW, TOP, FOOT = 960.0, 26.0, 8.0, 44.0  # user units
LEFT, RIGHT = 330.0, 700.0  # the panel, between the names and the words
APART = 52.0  # least distance of two ticks
RADIUS, SPREAD = 3.0, 8.0  # of a dot, and from the middle of its row to its first and last pair
MOST_DOTS, MOST_WORDS = 200, 34  # dots of a row, and characters beside it
SERIES: dict[Verdict, str] = {  # with the colours of page.css
    "REGRESSED": "c1",
    "NOT_COMPARABLE": "c6",
    "INCONCLUSIVE": "c4",
    "IMPROVED": "c2",
    "UNCHANGED": "c7",
}


def pairs_html(report: GateReport) -> str:
    """Return the legend and the chart of *report*. Raises: UsageError for one without any times."""
    rows, sentinels = rows_of(report)
    cases = worst_first(report)[: len(rows)]
    place = _scale([*rows, *sentinels])
    height = TOP + (len(rows) + len(sentinels)) * ROW + FOOT
    words = words_of(report)
    present = [v for v in SERIES if any(case.judged.verdict == v for case in cases)]
    legend = "".join(
        f'<li data-s="{SERIES[verdict]}">{_swatch(verdict)}{text(words[verdict])}'
        for verdict in present
    )
    summary = f"Slowdown of the head in each pair, {len(rows)} cases; the table below has the means"
    drawn = [
        f'<svg viewBox="0 0 {WIDE:g} {height:g}" class="v-pairs" role=img aria-label="{summary}">',
        *_axis(place, height),
        *(
            _case(i, row, case, place)
            for i, (row, case) in enumerate(zip(rows, cases, strict=True))
        ),
        *(_furniture(len(rows) + i, row, place, "ref") for i, row in enumerate(sentinels)),
        *(_reference(len(rows) + i, row, place) for i, row in enumerate(sentinels)),
        "</svg>",
    ]
    return f"<div class=tools><ul class=legend>{legend}</ul></div>{''.join(drawn)}"


def _swatch(verdict: Verdict) -> str:
    looks = f'viewBox="-7 -7 14 14" class="swatch {SERIES[verdict]}" aria-hidden=true'
    return f'<svg {looks}><circle r="5"/></svg>'


def _scale(rows: Sequence[PairRow]) -> Callable[[float], float]:
    """Return the x of a log ratio: around all means and intervals, and most dots. Far slowdowns
    have a logarithmic axis."""
    least = min(LEAST * min(row.margin for row in rows), FARTHEST)
    needed = [least, *(abs(value) for row in rows for value in row.marks)]
    far = BEYOND * max(needed)
    dots = (abs(dot) for row in rows for dot in (*row.hollow, *row.filled))
    end = 1.06 * max(*needed, *(dot for dot in dots if dot <= far))
    knee = KNEE if end > LINEAR else 10 * end

    def place(ratio: float) -> float:
        share = math.asinh(ratio / knee) / math.asinh(end / knee)
        return LEFT + (1 + min(1.0, max(-1.0, share))) * (RIGHT - LEFT) / 2

    return place


def _axis(place: Callable[[float], float], height: float) -> Iterator[str]:
    low = height - FOOT
    ticks, lines, words = [place(0.0)], [], [(place(0.0), "0")]
    tenths = [step / 10 for step in STEPS[:6]]
    for step in sorted([*tenths, *STEPS], reverse=True):  # the larger ones first
        for sign in (1, -1):
            if sign * step <= -100:
                continue
            x = place(math.log1p(sign * step / 100))
            inside = LEFT + 4 < x < RIGHT - 4
            if inside and all(abs(x - other) > APART for other in ticks):
                ticks.append(x)
                words.append((x, f"{sign * step:+g} %"))
    for x, word in words:
        lines.append(f"M{x:.1f} {TOP:g}V{low:g}")
        yield f'<text x="{x:.1f}" y="{low + 16:g}" class="mid quiet">{word}</text>'
    yield f'<path class=grid d="{"".join(lines)}"/>'
    yield (
        f'<text class="axis mid" x="{(LEFT + RIGHT) / 2:g}" y="{height - 8:g}">'
        "time of the head over that of the base, less 1</text>"
    )


def _case(i: int, row: PairRow, case: CaseVerdict, place: Callable[[float], float]) -> str:
    """Return the row of *case*: what does not move, then a mark for each pair."""
    colour = SERIES[case.judged.verdict]
    parts = [_furniture(i, row, place, colour)]
    sentences = list(_sentences(case))
    count = len(row.hollow) + len(row.filled)
    number = 0
    for dots, kind in ((row.hollow, "marks doubt"), (row.filled, "marks")):
        marks = []
        for dot in dots:
            at = TOP + (i + 0.5) * ROW + SPREAD * (2 * number / max(1, count - 1) - 1)
            words = sentences[number] if number < len(sentences) else ""
            if number < MOST_DOTS:
                marks.append(
                    f"<circle cx={place(dot):.1f} cy={at:.1f} r={RADIUS:g} data-r={i} "
                    f'data-t="{text(words)}" />'
                )
            number += 1
        if marks:
            parts.append(f'<g class="{kind} {colour}" data-s="{colour}">{"".join(marks)}</g>')
    return "".join(parts)


def _sentences(case: CaseVerdict) -> Iterator[str]:
    """Yield a sentence on each dot of *case*, in the order of `rows_of`."""
    if case.evidence is not None:
        kinds = (("screening", case.evidence.screen), ("confirming", case.evidence.confirm))
        for kind, pairs in kinds:
            if pairs is not None:
                yield from _of_pairs(kind, pairs)
    elif case.sets is not None:
        for side, values in (("base", case.sets.base), ("head", case.sets.head)):
            for number, value in enumerate(values, 1):
                yield f"process {number} of the {side}: {format_time(value)}"


def _of_pairs(kind: str, pairs: Pairs) -> Iterator[str]:
    for number, (base, head) in enumerate(zip_longest(pairs.base, pairs.head, fillvalue=0.0), 1):
        if 0 < base < math.inf and 0 < head < math.inf:
            yield (
                f"{kind} pair {number} of {len(pairs.base)}: base {format_time(base)}, "
                f"head {format_time(head)}, {percent(head / base - 1)}"
            )


def _furniture(i: int, row: PairRow, place: Callable[[float], float], colour: str) -> str:
    """Return the name, the margin, the mean with its interval, and the words of one row."""
    middle = TOP + (i + 0.5) * ROW
    left, right = place(-row.margin), place(row.margin)
    drawn = [
        f'<rect class=band x="{left:.1f}" y="{middle - ROW / 2:.1f}" '
        f'width="{right - left:.1f}" height="{ROW:g}"/>',
        f'<path class=zero d="M{place(0.0):.1f} {middle - ROW / 2:.1f}v{ROW:g}"/>',
        f'<text x="{LEFT - 10:g}" y="{middle + 4:.1f}" class=end>{text(row.name)}</text>',
        f'<text x="{RIGHT + 10:g}" y="{middle + 4:.1f}" class="{"said" if row.loud else "quiet"}">'
        f"{text(shorten(row.words, MOST_WORDS))}</text>",
    ]
    ends = [place(v) for v in (row.low, row.high) if v is not None and abs(v) < FARTHEST]
    if len(ends) == 2:
        drawn.append(f'<path class=mean d="M{ends[0]:.1f} {middle:.1f}H{ends[1]:.1f}"/>')
    if row.mean is not None and abs(row.mean) < FARTHEST:
        drawn.append(f'<path class=mean d="M{place(row.mean):.1f} {middle - 6:.1f}v12"/>')
    number = "" if colour == "ref" else f' data-row="{i}"'
    return f'<g class="row {colour}"{number}>{"".join(drawn)}</g>'


def _reference(i: int, row: PairRow, place: Callable[[float], float]) -> str:
    """Return the dots of a sentinel, which has no row in the table."""
    dots, top = row.filled[:MOST_DOTS], TOP + (i + 0.5) * ROW
    drawn = (
        f"<circle cx={place(dot):.1f} cy={top + SPREAD * (2 * n / max(1, len(dots) - 1) - 1):.1f} "
        f"r={RADIUS:g} />"
        for n, dot in enumerate(dots)
    )
    return f"<g class=ref>{''.join(drawn)}</g>"
