"""Draw simulated servers: latency against throughput, and the use of the cache over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuperf.show.figure import COLOURS, decades, figure, label_ticks, plain_number, tick_values
from gpuperf.theory.serving.question import Question
from gpuperf.theory.serving.rate import Rate
from gpuperf.theory.serving.study import CHART_LOADS, POLICIES, Bench, Row
from gpuperf.units import format_time

TALL = 3.0  # inches
LINES = (("p50", 0, "-"), ("p99", 2, "--"))  # name, place among the quantiles, style


def draw_serve(question: Question, bench: Bench, rows: Sequence[Row], path: Path) -> None:
    """Draw the policies of *rows* at their first number of slots to *path*, PNG or SVG.

    Raises: UsageError for another suffix and an unwritable path.
    """
    policies, slots, first = (
        tuple(dict.fromkeys(r.policy for r in rows)),
        rows[0].slots,
        rows[0].rate,
    )
    notes = [*question.remarks]
    with figure(path, f"serve: {question.title}", question.lead, notes) as frame:
        ttft, tbt, cache = frame.stack(TALL, TALL, TALL)
        handles = []
        for policy in policies:
            colour = COLOURS[list(POLICIES).index(policy)]
            at = [bench.row(policy, slots, Rate("capacity", load)) for load in CHART_LOADS]
            for name, place, style in LINES:
                look = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3}
                xs = [row.outcome.tokens_per_s for row in at]
                label = f"{policy}, {name}"
                handles += ttft.plot(xs, [r.outcome.ttft_s[place] for r in at], label=label, **look)
                if all(row.outcome.tbt_s for row in at):
                    tbt.plot(xs, [row.outcome.tbt_s[place] for row in at], **look)
            _occupancy(cache, question, bench.row(policy, slots, first), colour)
        for panel, name in ((ttft, "time to the first token"), (tbt, "time between tokens")):
            _latency(panel, name)
        cache.set_xlabel(f"time in s, {slots} slots, rate {first.text}")
        cache.set_ylabel("cache, % (line: reserved; area: needed)")
        cache.set_xlim(left=0)
        cache.set_ylim(bottom=0)
        cache.grid(True)
        label_ticks(cache.xaxis, plain_number)
        frame.legend(handles)
        frame.fit()


def _latency(panel: Any, name: str) -> None:
    panel.set_yscale("log")
    panel.set_xlim(left=0)
    label_ticks(panel.xaxis, plain_number)
    low, high = panel.get_ylim()
    steps = (1,) if decades(low, high) > 3 else (1, 2, 5)
    label_ticks(panel.yaxis, lambda value: format_time(value, 1), tick_values(low, high, steps))
    loads = f"{CHART_LOADS[0] * 100:.0f} to {CHART_LOADS[-1] * 100:.0f} % of each policy's capacity"
    panel.set_xlabel(f"tokens/s, at {loads}")
    panel.set_ylabel(name)
    panel.grid(True)


def _occupancy(panel: Any, question: Question, row: Row, colour: str) -> None:
    times, reserved, stored = zip(*row.outcome.occupancy, strict=True)
    percent = 100 / question.room
    panel.plot(times, [tokens * percent for tokens in reserved], color=colour, linewidth=1)
    needed = [tokens * percent for tokens in stored]
    panel.fill_between(times, needed, color=colour, alpha=0.2, linewidth=0)
