"""Rule on an experiment: CONFIRMED, REFUTED or INCONCLUSIVE, with the reason in a sentence.

Controls come first: if one differs from its prediction, something else is being measured, and no
agreement elsewhere counts. A doubtful measurement never confirms or refutes.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.lab.laws import LEAST, NotFitted, fit_law
from gpuperf.lab.study import LabPoint, Study, data_of
from gpuperf.lab.wording import expected_text, fitted_text, measured_text, place_text
from gpuperf.model.experiment import Fitted, Ruling

AGREEING = 0.9  # share of the points of a model that must agree
MOST_WIDTH = 2.0  # of the interval of a parameter, over the width of its band


def judge(study: Study) -> Ruling:
    """Return the ruling on *study*."""
    points = [point for point in study.points if point.agreement not in ("", "baseline")]
    if problem := _controls(study) or _doubts(study) or _too_few(study, points):
        return Ruling("INCONCLUSIVE", problem)
    series = {name: data_of(of) for name, of in study.series.items()}
    measured = {name: pair[0] for name, pair in series.items() if pair[0]}
    predicted = {name: pair[1] for name, pair in series.items() if pair[1]}
    try:
        fitted = fit_law(study.experiment.law, measured, predicted)
    except NotFitted as reason:
        return Ruling("INCONCLUSIVE", f"The law cannot be fitted: {reason}.")
    return _verdict(study, points, fitted)


def _verdict(study: Study, points: Sequence[LabPoint], fitted: tuple[Fitted, ...]) -> Ruling:
    refuting = [point for point in points if point.agreement == "refutes"]
    differing = [point for point in points if point.agreement in ("refutes", "differs")]
    imprecise = [point for point in points if point.agreement == "imprecise"]
    strict = any(p.expected and p.expected.kind != "model" for p in points)
    allowed = 0 if strict else (1 - AGREEING) * len(points)
    off = [parameter for parameter in fitted if _agreement(parameter) == "refutes"]
    if off:
        text = fitted_text(off[0], study.experiment)
        return Ruling("REFUTED", f"{text[0].upper()}{text[1:]}.", fitted)
    if len(refuting) > allowed:
        return Ruling("REFUTED", _apart(study, refuting, points), fitted)
    if len(imprecise) > (1 - AGREEING) * len(points):
        count = f"{len(imprecise)} of {len(points)} points"
        text = f"{count} have intervals wider than the band of their prediction."
        return Ruling("INCONCLUSIVE", text, fitted)
    if len(differing) > allowed:
        text = f"{_apart(study, differing, points)[:-1]}, but by less than twice the band."
        if refuting:
            beyond = f"{len(refuting)} of them by more than twice the band"
            text = f"{_apart(study, differing, points)[:-1]}, {beyond}: too few to refute a model."
        return Ruling("INCONCLUSIVE", text, fitted)
    unsure = [p for p in fitted if _agreement(p) != "agrees"]
    if unsure:
        how = "imprecise" if _agreement(unsure[0]) == "imprecise" else "outside of the band"
        text = f"{fitted_text(unsure[0], study.experiment)}, which is {how}."
        return Ruling("INCONCLUSIVE", f"{text[0].upper()}{text[1:]}", fitted)
    agreeing = len(points) - len(differing)
    text = f"{agreeing} of {len(points)} points agree with the prediction"
    texts = [text, *(fitted_text(parameter, study.experiment) for parameter in fitted[:3])]
    return Ruling("CONFIRMED", "; ".join(texts) + ".", fitted)


def _agreement(fitted: Fitted) -> str:
    """Return how the interval of a parameter lies to its band, as of a point.

    The band is one of factors: from expected / (1 + band) to expected · (1 + band).
    """
    expected, once, twice = fitted.expected, 1 + fitted.band, 1 + 2 * fitted.band
    if fitted.high < expected / twice or fitted.low > expected * twice:
        return "refutes"
    if fitted.high - fitted.low > MOST_WIDTH * 2 * expected * fitted.band:
        return "imprecise"
    agrees = fitted.low <= expected * once and fitted.high >= expected / once
    return "agrees" if agrees else "differs"


def _controls(study: Study) -> str:
    """Return what is wrong with the controls; nothing if all are as predicted."""
    able = not study.experiment.controls
    for control in study.experiment.controls:
        named = [p for p in study.controls if p.prediction.control == control.name]
        points = [p for p in named if p.agreement != "baseline"]
        if not named:
            return f"The control '{control.name}' was not measured."
        able = able or bool(points)
        for point in points:
            if point.measured is None or point.doubt or point.expected is None:
                why = point.doubt or point.reason or point.prediction.reason
                return f"The control '{control.name}' cannot be judged: {why}."
            if point.agreement in ("differs", "refutes"):
                return (
                    f"The control '{control.name}' moved: {measured_text(point, study)} instead of "
                    f"{expected_text(point, study)}, so something else is being measured."
                )
            if point.agreement == "imprecise":
                return (
                    f"The control '{control.name}' is too imprecise: "
                    f"{measured_text(point, study)}, where {expected_text(point, study)} is "
                    "predicted."
                )
    return "" if able else "No control can differ: each compares a case with itself."


def _doubts(study: Study) -> str:
    unpredicted = [p for p in study.points if p.expected is None]
    if unpredicted and len(unpredicted) == len(study.points):
        return f"Nothing is predicted: {unpredicted[0].prediction.reason}."
    doubtful = [point for point in study.points if point.doubt]
    if not doubtful:
        return ""
    where = f" and {len(doubtful) - 1} more points" if len(doubtful) > 1 else ""
    return f"At {place_text(doubtful[0], study)}{where}, {doubtful[0].doubt}."


def _too_few(study: Study, points: Sequence[LabPoint]) -> str:
    if len(points) >= LEAST:
        return ""
    missing = next((p for p in study.points if not p.measured), None)
    reason = f" ({place_text(missing, study)}: {missing.reason})" if missing else ""
    return f"{len(points)} points were measured, and a ruling needs {LEAST}{reason}."


def _apart(study: Study, differing: Sequence[LabPoint], points: Sequence[LabPoint]) -> str:
    worst = max(differing, key=lambda p: abs((p.ratio or 1.0) - 1))
    return (
        f"{len(differing)} of {len(points)} points differ from the prediction: at "
        f"{place_text(worst, study)} {measured_text(worst, study)} instead of "
        f"{expected_text(worst, study)}."
    )
