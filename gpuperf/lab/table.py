"""Make the table of an experiment: its question, each point beside its prediction, the ruling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuperf.lab.judging import judge
from gpuperf.lab.study import LabPoint, Study, study_run
from gpuperf.lab.wording import UNKNOWN, head_of, quantity, x_text
from gpuperf.model.codec import to_builtins
from gpuperf.model.experiment import ExperimentDescription, Need, Ruling
from gpuperf.model.record import Run
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Column, Mood, Note, Table, fill
from gpuperf.units import format_interval, format_number

NEEDS: dict[Need, str] = {
    "cuda": "an NVIDIA GPU",
    "counters": "hardware counters",
    "peer": "a second GPU",
    "gang": "--gpus 2",
}
WORDS = {
    "agrees": "agrees",
    "differs": "differs",
    "refutes": "REFUTES",
    "imprecise": "imprecise",
    "baseline": "the baseline",
    "": UNKNOWN,
}


def render_lab(run: Run, format: str, screen: Screen = WIDE) -> str:
    """Render the experiment of *run* as table, md, json or csv. Raises: RunFileError."""
    study = study_run(run)
    table = lab_table(study, judge(study), run.header.device.name)
    if format == "json":
        from gpuperf.show.data import to_json

        return to_json(lab_data(study, judge(study)), screen.ascii)
    return render([table], format, screen)


def lab_table(study: Study, ruling: Ruling, device: str) -> Table:
    """Make the table of one experiment, with the ruling above it."""
    points = [*study.points, *study.controls]
    several = len({point.prediction.series for point in points}) > 1
    head = study.experiment.x
    further = _further(study, points)
    columns = [
        Column(head, identity=True),
        *([Column(study.experiment.series, left=True, identity=True)] if several else []),
        *(Column(axis, keep=4) for axis in further),
        Column("measured", head_of(study.experiment)),
        Column("interval", keep=3),
        Column("predicted"),
        Column("ratio"),
        Column("verdict", left=True, wrap=16, moods=tuple(map(_mood, points))),
        Column("because", left=True, wrap=24, keep=2),
    ]
    rows = [_cells(point, study, several, further) for point in points]
    return Table(
        columns=fill(columns, rows),
        title=f"{study.experiment.name}: {study.experiment.question}",
        lead=(f"{ruling.verdict}. {ruling.sentence}", device),
        footnotes=_notes(study),
        rows=[_row(point, study) for point in points],
        names=("experiment", "x", "measured", "predicted", "verdict"),
    )


def lab_data(study: Study, ruling: Ruling) -> dict[str, Any]:
    """Return the experiment, its ruling and its points as data for JSON."""
    return {
        "experiment": to_builtins(study.experiment),
        "ruling": to_builtins(ruling),
        "points": [_row(point, study) for point in (*study.points, *study.controls)],
    }


def experiments_table(
    experiments: Sequence[ExperimentDescription], broken: dict[str, str]
) -> Table:
    """Make a table with a line for each experiment: its question, needs, axes and controls."""
    rows = [
        (e.name, e.question, needs_text(e), _axes(e), ", ".join(c.name for c in e.controls))
        for e in experiments
    ]
    columns = (
        Column("experiment", left=True, identity=True),
        Column("question", left=True, wrap=36),
        Column("needs", left=True, wrap=14),
        Column("axes", left=True, wrap=20, keep=2),
        Column("controls", left=True, wrap=12, keep=1),
    )
    names = ("name", "question", "needs", "axes", "controls")
    data = [dict(zip(names, row, strict=True)) for row in rows]
    notes = tuple((name, f"does not load: {reason}") for name, reason in broken.items())
    return Table(columns=fill(columns, rows), rows=data, names=names, notes=notes)


def needs_text(experiment: ExperimentDescription) -> str:
    """Write what an experiment needs: `an NVIDIA GPU and hardware counters`; `nothing`."""
    return " and ".join(NEEDS[need] for need in experiment.needs) or "nothing"


def _axes(experiment: ExperimentDescription) -> str:
    texts = []
    for name, values in experiment.axes.items():
        shown = [str(v) for v in values]
        few = shown if len(shown) <= 4 else [*shown[:2], "…", shown[-1]]
        texts.append(f"{name}={','.join(few)}")
    return " ".join(texts)


def _further(study: Study, points: Sequence[LabPoint]) -> tuple[str, ...]:
    """Return the axes that tell points apart beside x and the series."""
    experiment = study.experiment
    shown = (experiment.x, experiment.series)
    return tuple(
        axis
        for axis in experiment.axes
        if axis not in shown and len({str(point.axes.get(axis, "")) for point in points}) > 1
    )


def _cells(point: LabPoint, study: Study, several: bool, further: Sequence[str]) -> list[str]:
    prediction, measured, expected = point.prediction, point.measured, point.expected
    unit = study.experiment.unit
    control = f" ({prediction.control})" if prediction.control else ""
    verdict = point.doubt or point.reason or WORDS[point.agreement]
    why = expected.because if expected else prediction.reason
    return [
        f"{x_text(prediction)}{control}",
        *([prediction.series] if several else []),
        *(str(point.axes.get(axis, "")) for axis in further),
        quantity(measured.value, unit) if measured else UNKNOWN,
        _interval(point),
        _predicted(point, unit),
        format_number(point.ratio, 4) if point.ratio is not None else UNKNOWN,
        f"control: {verdict}" if prediction.control else verdict,
        why,
    ]


def _interval(point: LabPoint) -> str:
    measured = point.measured
    if measured is None:
        return ""
    if measured.low == measured.high:
        return "exact"
    return format_interval(measured.value, measured.low, measured.high)


def _predicted(point: LabPoint, unit: str) -> str:
    expected = point.expected
    if expected is None:
        return UNKNOWN
    sign = "≤ " if expected.kind == "bound" else ""
    return f"{sign}{quantity(expected.value, unit)}"


def _mood(point: LabPoint) -> Mood:
    if point.agreement == "refutes":
        return "failure"
    return "" if point.agreement in ("agrees", "baseline") and not point.doubt else "doubt"


def _row(point: LabPoint, study: Study) -> dict[str, Any]:
    prediction, measured, expected = point.prediction, point.measured, point.expected
    return {
        "experiment": study.experiment.name,
        "case": prediction.case,
        "control": prediction.control,
        "series": prediction.series,
        "x": prediction.x,
        "label": prediction.label,
        "unit": study.experiment.unit,
        "measured": measured.value if measured else None,
        "measured_low": measured.low if measured else None,
        "measured_high": measured.high if measured else None,
        "predicted": expected.value if expected else None,
        "predicted_low": expected.low if expected else None,
        "predicted_high": expected.high if expected else None,
        "kind": expected.kind if expected else "",
        "because": expected.because if expected else prediction.reason,
        "ratio": point.ratio,
        "verdict": point.agreement,
        "reason": point.reason or point.doubt,
    }


def _notes(study: Study) -> tuple[Note, ...]:
    controls = [(f"control {c.name}", c.because) for c in study.experiment.controls]
    notes = [("note", note) for note in study.experiment.notes]
    claims = [("claims", ", ".join(study.experiment.claims))] if study.experiment.claims else []
    return (*controls, *notes, *claims)
