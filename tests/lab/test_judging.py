"""The judge is judged: on devices that follow the law, and on devices that do not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from synthetic_lab import LINE, SHAPES, Shape, study_of

from gpuperf.lab.judging import judge
from gpuperf.lab.study import LabPoint, Measured, Study
from gpuperf.model.experiment import ControlDescription, Law, about, exactly

SEEDS = range(200)
by_law = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.form)


def verdicts(shape: Shape, truth: object, control: float = 1.0) -> Counter[str]:
    studies = (study_of(shape, truth, seed, control) for seed in SEEDS)  # type: ignore[arg-type]
    return Counter(judge(study).verdict for study in studies)


@by_law
def test_a_device_that_follows_the_law_confirms_it(shape: Shape) -> None:
    assert verdicts(shape, shape.theory) == {"CONFIRMED": 200}


@pytest.mark.parametrize(
    ("shape", "change"),
    [(shape, change) for shape in SHAPES for change in shape.wrong],
    ids=lambda value: value if isinstance(value, str) else value.form,
)
def test_a_device_with_another_law_never_confirms_it(shape: Shape, change: str) -> None:
    assert verdicts(shape, shape.wrong[change]) == {"REFUTED": 200}


@pytest.mark.parametrize("control", [0.8, 1.2])
@pytest.mark.parametrize("shape", SHAPES[1:4:2], ids=lambda shape: shape.form)
def test_a_moved_control_is_inconclusive_whatever_the_points_say(
    shape: Shape, control: float
) -> None:
    assert verdicts(shape, shape.theory, control) == {"INCONCLUSIVE": 200}


def line() -> Study:
    return study_of(Shape("points", LINE, tuple(range(1, 11)), {}), LINE, seed=1)


def with_points(*points: LabPoint) -> Study:
    return replace(line(), points=points)


def at(x: float, measured: float, half: float = 0.001) -> LabPoint:
    """A point whose prediction is exactly 100."""
    prediction = replace(line().points[0].prediction, x=x, label=f"{x:g}")
    prediction = replace(prediction, expected=exactly(100, "cycles", "counted"))
    return LabPoint(prediction, Measured(measured, measured * (1 - half), measured * (1 + half)))


@pytest.mark.parametrize(
    ("values", "verdict", "sentence"),
    [
        ((100, 100.5, 99.2), "CONFIRMED", "3 of 3 points agree with the prediction."),
        ((100, 100, 100, 103), "REFUTED", "1 of 4 points differ from the prediction: at x=4"),
        ((100, 100, 100, 101.5), "INCONCLUSIVE", "but by less than twice the band"),
    ],
)
def test_every_point_of_an_exact_prediction_must_agree(
    values: tuple[float, ...], verdict: str, sentence: str
) -> None:
    ruling = judge(with_points(*(at(i + 1, value) for i, value in enumerate(values))))
    assert ruling.verdict == verdict
    assert sentence in ruling.sentence


def test_points_that_refute_and_are_too_few_to_are_counted() -> None:
    """One point in ten of a model may refute; more than that differ here."""

    def near(x: float, measured: float) -> LabPoint:
        point = at(x, measured)
        prediction = replace(point.prediction, expected=about(100, "cycles", "a model", 0.01))
        return replace(point, prediction=prediction)

    ruling = judge(with_points(*(near(i, 100) for i in range(9)), near(9, 101.5), near(10, 130)))
    assert ruling.verdict == "INCONCLUSIVE"
    assert "1 of them by more than twice the band: too few to refute a model." in ruling.sentence


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"doubt": "the kernel spills registers to memory"}, "At x=1, the kernel spills"),
        ({"doubt": "hardware counters are missing"}, "hardware counters are missing"),
        ({"doubt": "the clock was held down while it was timed"}, "the clock was held down"),
    ],
)
def test_a_doubtful_point_decides_nothing(change: dict[str, str], sentence: str) -> None:
    first, *others = line().points
    ruling = judge(with_points(replace(first, **change), *others))  # type: ignore[arg-type]
    assert ruling.verdict == "INCONCLUSIVE"
    assert sentence in ruling.sentence


def test_two_points_decide_nothing() -> None:
    missing = replace(at(3, 100), measured=None, reason="oom: the device has no memory left")
    ruling = judge(with_points(at(1, 100), at(2, 100), missing))
    assert ruling.verdict == "INCONCLUSIVE"
    assert ruling.sentence == (
        "2 points were measured, and a ruling needs 3 (x=3: oom: the device has no memory left)."
    )


def test_wide_intervals_decide_nothing() -> None:
    ruling = judge(with_points(*(at(x, 104, half=0.05) for x in (1, 2, 3))))
    assert ruling.verdict == "INCONCLUSIVE"
    assert "3 of 3 points have intervals wider than the band" in ruling.sentence


def test_a_control_without_a_measurement_is_inconclusive() -> None:
    unmeasured = replace(line(), controls=())
    assert judge(unmeasured).sentence == "The control 'held' was not measured."
    failed = replace(line().controls[0], measured=None, reason="crashed: it died")
    assert (
        "cannot be judged: crashed: it died" in judge(replace(line(), controls=(failed,))).sentence
    )


def test_a_moved_control_is_named_with_its_figures() -> None:
    study = study_of(SHAPES[0], SHAPES[0].theory, 7, control=2.0)
    sentence = judge(study).sentence
    assert sentence.startswith("The control 'held' moved: ")
    assert "instead of 1 cycle (0.95 to 1.05)" in sentence


def test_a_law_that_the_points_do_not_determine_is_inconclusive() -> None:
    study = line()
    law = Law("saturation")
    ruling = judge(replace(study, experiment=replace(study.experiment, law=law)))
    assert ruling.verdict == "INCONCLUSIVE"
    assert ruling.sentence == "The law cannot be fitted: the knee is not within the points."


def test_an_experiment_without_controls_is_judged_by_its_points() -> None:
    study = replace(line(), controls=())
    free = replace(study, experiment=replace(study.experiment, controls=()))
    assert judge(free).verdict == "CONFIRMED"
    assert isinstance(line().experiment.controls[0], ControlDescription)
