"""Render a study of waves: kernels with their tiles and models, and where waves end."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.model.record import Run
from gpuperf.model.text import shorten
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Table, fill, notes_of
from gpuperf.tiles.waves import Fit
from gpuperf.waves.study import DROP, KernelStudy, WaveStudy, ninetieth, study_waves

LONGEST = 64  # characters of a kernel's name
MOST_CLIFFS = 20
KERNEL_COLUMNS = (
    Column("kernel", left=True, wrap=30),
    Column("sizes"),
    Column("tile"),
    Column("SMs", keep=3),
    Column("cycles", "of a call", keep=4),
    Column("cycles", "of a wave", keep=4),
    Column("judged on", keep=2),
    Column("off", "median"),
    Column("off", "90 %", keep=5),
)
CLIFF_COLUMNS = (
    Column(left=True),
    Column("waves"),
    Column("one more costs"),
    Column("measured"),
    Column("kernel", left=True, wrap=30),
)


def render_waves(run: Run, format: str, screen: Screen = WIDE) -> str:
    """Render the study as table or md; as json or csv, a row a size."""
    try:
        study = study_waves(run)
    except UsageError as error:
        problem = Table(notes=notes_of(f"{error}; {error.hint}"), names=("size",))
        return render([problem], format, screen)
    tables = [_kernels(study)]
    if study.boundaries:
        tables.append(_cliffs(study))
    return render(tables, format, screen)


def tile_text(model: Fit, sure: bool) -> str:
    """Return `128×256×64`, with ` ?` where it is assumed which side lies along m."""
    tiling = model.tiling
    deep = f"×{tiling.depth}" if tiling.depth > 1 else ""  # 1 is unknown
    return f"{tiling.rows}×{tiling.columns}{deep}{'' if sure else ' ?'}"


def _row(study: WaveStudy, kernel: KernelStudy, index: int) -> dict[str, Any]:
    point, model, held = kernel.points[index], kernel.model, kernel.held_out
    at = point.measured
    predicted = model.cycles(at.m, at.n, at.k) if model else None
    return {
        "case": point.record.case.id,
        "implementation": kernel.implementation,
        "dtype": kernel.dtype,
        "where": kernel.where,
        "axis": "=".join(study.axes),
        "size": point.size,
        "kernel": kernel.kernel,
        "cycles": at.cycles,
        "sm_clock_hz": point.clock_hz,
        "flop_per_cycle": point.flop_per_cycle,
        "tiles": model.tiling.tiles(at.m, at.n) if model else None,
        "waves": model.tiling.waves(at.m, at.n) if model else None,
        "tile_efficiency": model.tiling.tile_efficiency(at.m, at.n) if model else None,
        "wave_efficiency": model.tiling.wave_efficiency(at.m, at.n) if model else None,
        "depth_efficiency": (
            model.tiling.depth_efficiency(at.k) if model and model.tiling.depth > 1 else None
        ),
        "held_out": (at.m, at.n, at.k) in held,
        "predicted_cycles": predicted,
        "predicted_over_measured": predicted / at.cycles if predicted else None,
        "reason": kernel.reason,
    }


def error_text(study: WaveStudy) -> str:
    """Describe the errors of all predictions at held-out sizes; nothing where there are none."""
    unseen = [abs(error) for kernel in study.kernels for error in kernel.unseen]
    if not unseen:
        return ""
    return (
        f"predicted within {statistics.median(unseen) * 100:.2f} % (median), "
        f"{ninetieth(unseen) * 100:.2f} % (90 %), {max(unseen) * 100:.2f} % (all) on {len(unseen)} "
        "held-out sizes"
    )


def _kernels(study: WaveStudy) -> Table:
    several = len({(kernel.implementation, kernel.dtype) for kernel in study.kernels}) > 1
    cells, notes = [], []
    for kernel in study.kernels:
        first, last = kernel.points[0].size, kernel.points[-1].size
        span = f"{len(kernel.points)}: {first} to {last}" if first != last else f"1: {first}"
        name = shorten(kernel.kernel, LONGEST) or "unknown"
        whose = f"{kernel.implementation} {kernel.dtype}" if several else ""
        line = [", ".join(filter(None, (whose, name, kernel.where))), span]
        model, middle, high = kernel.model, kernel.median_error, kernel.high_error
        if model is None or middle is None or high is None:
            cells.append([*line, *"–––––––"])
            notes.append(f"{line[0]}: {kernel.reason or 'no size was held out to judge the model'}")
            continue
        tiling, depth = model.tiling, model.tiling.steps(kernel.points[0].measured.k)
        cells.append(
            [
                *line,
                tile_text(model, kernel.sure),
                str(tiling.sms),
                f"{model.launch:,.0f}",
                f"{model.start + depth * model.step:,.0f}",
                str(len(kernel.unseen)),
                f"{middle * 100:.2f} %",
                f"{high * 100:.2f} %",
            ]
        )
    if words := error_text(study):
        notes.append(words)
    met = [b.met for b in study.boundaries if b.met is not None]
    if met:
        notes.append(
            f"waves: of {len(met)} boundaries with a predicted drop over {DROP * 100:.0f} % "
            f"between the sizes beside them, {sum(met)} have a measured drop within one size"
        )
    notes.append("off: the error of predicted cycles at sizes that the model was not fitted on")
    if any(kernel.model and not kernel.sure for kernel in study.kernels):
        notes.append(
            "?: which side of the tile lies along m is assumed: neither grid nor fit show it"
        )
    rows = [_row(study, kernel, i) for kernel in study.kernels for i in range(len(kernel.points))]
    return Table(
        columns=fill(KERNEL_COLUMNS, cells),
        notes=notes_of(*notes, *study.left_out),
        rows=rows,
        names=("size",),
    )


def _cliffs(study: WaveStudy) -> Table:
    """List the sizes after which one more element costs more than `DROP`."""
    steep = [b for b in study.boundaries if b.predicted > DROP]
    shown = sorted(steep, key=lambda b: -b.predicted)[:MOST_CLIFFS]
    cells = [
        [
            str(b.last),
            f"{b.waves} → {b.after}",
            f"{b.predicted * 100:.1f} %",
            "–" if b.met is None else "yes" if b.met else "no",
            ", ".join(filter(None, (shorten(b.kernel, LONGEST), b.where))),
        ]
        for b in sorted(shown, key=lambda b: b.last)
    ]
    if not cells:
        return Table(notes=notes_of("no end of a wave costs more than 5 %"))
    more = ["measured: – where the predicted drop between the sizes beside it is under 5 %"]
    more += [f"{len(steep) - len(shown)} more"] if len(steep) > len(shown) else []
    size, *others = CLIFF_COLUMNS
    columns = fill([replace(size, head="=".join(study.axes)), *others], cells)
    return Table(columns, notes=notes_of(*more))
