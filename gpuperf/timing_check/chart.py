"""Draw each timer's bias over the kernels' time, and the scatter of the cases below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.show.contract import note
from gpuperf.show.figure import COLOURS, INK, MARKERS, figure
from gpuperf.timing_check.study import CaseTiming, compared_timers, timings

LINEAR = 0.01  # under ± 1 % the bias axis is linear


def draw_timing(run: Run, paths: Sequence[Path]) -> None:
    """Draw the check in *run* to each of *paths*.

    Raises: UsageError for another suffix, an unwritable path, and a run with nothing to draw.
    """
    cases = timings(run.records)
    if not any(t.bias and t.kernels == 1 for t in cases):
        raise UsageError(
            "nothing can be drawn: no call of one kernel was timed by every timer",
            "run timing-check without --default-only",
        )
    title = f"What timers add to a kernel on {run.header.device.name}"
    with figure(paths, title, notes=[note(run)]) as frame:
        scattered = [t for t in cases if t.noise]
        parts = frame.stack(*((4.0, 1.5) if scattered else (4.0,)), sharex=True)
        _draw_bias(parts[0], cases)
        if scattered:
            _draw_scatter(parts[1], scattered)
        _draw_sizes(parts[-1], cases)
        for part in parts:
            part.grid(True)
        frame.fit()


def _draw_sizes(lower: Any, cases: Sequence[CaseTiming]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    lower.set_xlabel("busy time of the kernel (span of several), µs")
    xs = [_place(t) for t in cases]
    lower.set_xlim(min(xs) / 1.4, max(xs) * 1.4)
    lower.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    lower.xaxis.set_minor_formatter(NullFormatter())


def _draw_bias(upper: Any, cases: Sequence[CaseTiming]) -> None:
    """Draw what each timer adds to a kernel, and the default one to the span of several."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    for index, timer in enumerate(compared_timers()):
        points = [(_place(t), t.bias[timer]) for t in cases if t.kernels == 1 and timer in t.bias]
        if points:
            default = timer == "blocked"
            upper.plot(
                *zip(*points, strict=True),
                color=COLOURS[index % len(COLOURS)],
                label="blocked (default), one kernel" if default else timer,
                marker=MARKERS[index % len(MARKERS)],
                markersize=7 if default else 5,
                linewidth=2.4 if default else 1.2,
                zorder=3 if default else 2,
            )
    several = [(_place(t), t.over_span) for t in cases if t.over_span is not None]
    if several:
        upper.plot(
            *zip(*several, strict=True),
            color=COLOURS[0],
            marker="o",
            markersize=7,
            zorder=3,
            linestyle="none",
            markerfacecolor="white",
            markeredgewidth=1.6,
            label="several kernels, over CUPTI's span",
        )
    upper.set_yscale("symlog", linthresh=LINEAR, linscale=1.0)
    upper.set_xscale("log")
    ticks = [-0.5, -0.1, -0.03, -0.01, 0, 0.01, 0.03, 0.1, 0.3, 1, 3, 10]
    shown = [b for t in cases if t.kernels == 1 for b in t.bias.values()]
    shown += [over for _, over in several]
    most, least = max(shown), min(shown)
    upper.set_ylim(min(least * 1.3, -LINEAR), max(most * 8, LINEAR * 3))
    low, high = upper.get_ylim()
    upper.yaxis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
    upper.yaxis.set_minor_locator(NullLocator())
    upper.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v * 100:+g} %" if v else "0"))
    upper.axhline(0, color=INK, linewidth=0.8)
    upper.set_ylabel("timer over CUPTI busy, less 1")
    upper.legend(ncols=4, fontsize=9, loc="upper right")


def _place(timing: CaseTiming) -> float:
    """Return the x of a case in µs: the time of one kernel, or the span of several."""
    several = timing.kernels > 1 and timing.span_s
    return (timing.span_s if several and timing.span_s else timing.busy_s) * 1e6


def _draw_scatter(axes: Any, cases: Sequence[CaseTiming]) -> None:
    cases = sorted(cases, key=_place)
    xs = [_place(t) for t in cases]
    processes = max(t.noise.processes for t in cases if t.noise)
    within = [t.noise.within * 100 for t in cases if t.noise]
    between = [t.noise.between * 100 for t in cases if t.noise]
    axes.plot(xs, within, color=COLOURS[1], marker="o", markersize=4, label="inside a process")
    axes.plot(
        xs,
        between,
        color=COLOURS[0],
        marker="s",
        markersize=5,
        linewidth=2,
        label=f"between {processes} processes",
    )
    axes.set_ylabel("scatter (σ), %")
    axes.set_ylim(0, max(*within, *between) * 1.2)
    axes.legend(ncols=2, fontsize=9, loc="upper right")
