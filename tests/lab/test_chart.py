"""The one chart of all experiments: points, prediction, controls and knee, on every kind of x."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from synthetic_lab import CROSSING, ROOF, SHAPES, study_of

from gpuperf.lab.chart import draw_study
from gpuperf.lab.judging import judge
from gpuperf.lab.study import Study


def drawn(study: Study, folder: Path) -> str:
    """The text of the SVG; its words are text elements."""
    file = folder / "chart.svg"
    draw_study(study, judge(study), "a <device>", [file])
    return file.read_text(encoding="utf-8")


def shape(form: str) -> Study:
    (chosen,) = (s for s in SHAPES if s.form == form)
    return study_of(chosen, chosen.theory, seed=3)


def test_a_knee_is_marked_beside_the_predicted_one(tmp_path: Path) -> None:
    text = drawn(shape("saturation"), tmp_path)
    assert "predicted 1,500,000" in text
    assert "CONFIRMED. 13 of 13 points agree with the prediction" in text
    assert "control held" in text
    assert "a &lt;device&gt;" in text
    assert ROOF


def test_each_series_has_a_name(tmp_path: Path) -> None:
    text = drawn(shape("crossover"), tmp_path)
    assert all(f">{name}</text>" in text for name in CROSSING)


def test_words_on_x_are_in_the_order_of_the_plan(tmp_path: Path) -> None:
    study = shape("points")
    words = ("naive", "tiled", "padded")
    points = tuple(
        replace(point, prediction=replace(point.prediction, x=0.0, label=word))
        for point, word in zip(study.points, words, strict=False)
    )
    held = replace(study.controls[0], prediction=replace(points[0].prediction, control="held"))
    text = drawn(replace(study, points=points, controls=(held,)), tmp_path)
    places = [text.index(f">{word}</text>") for word in words]
    assert places == sorted(places)
