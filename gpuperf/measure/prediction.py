"""Ask an experiment what it expects of each case, before anything is timed.

An experiment's functions are a user's code: one that raises, or returns a value that no measurement
can have, leaves its case without a prediction and with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from gpuperf.model.contract import Cache
from gpuperf.model.experiment import (
    Expected,
    Experiment,
    Prediction,
    UnknownNumber,
    flaw_of,
    unit_of,
)
from gpuperf.model.protocol import Expect
from gpuperf.model.workload import Axis, Case, Point


class _Flaw(Exception):
    """A function of the experiment failed at a point, in a sentence."""


@dataclass(frozen=True)
class _Asked:
    """A request, and the point of each case by the case's id."""

    request: Expect
    points: Mapping[str, Point]


def point_of(case: Case, axes: Sequence[Axis]) -> Point:
    """Return the point that an experiment's functions get: the axes, also optional ones that the
    case lacks, the options, and the implementation."""
    absent = {axis.name: axis.default for axis in axes if axis.optional}
    values = {**absent, **case.point, **case.options}
    return Point({**values, "implementation": case.implementation})


def predict(
    experiment: Experiment, request: Expect, axes: Sequence[Axis] = ()
) -> tuple[Prediction, ...]:
    """Return the prediction of each case of *request*; `reason` says why one is missing.

    *axes* are those of the workload.
    """
    asked = _Asked(request, {case.id: point_of(case, axes) for case in request.cases})
    pairs = zip(request.cases, request.controls, strict=True)
    return tuple(_predict(experiment, case, control, asked) for case, control in pairs)


def _predict(experiment: Experiment, case: Case, name: str, asked: _Asked) -> Prediction:
    request, at = asked.request, asked.points[case.id]
    numbers, series = request.numbers, str(at.get(experiment.series, ""))
    try:
        place = _called("x", lambda: _place(experiment, at, request))
        return Prediction(
            case=case.id,
            x=0.0 if isinstance(place, str) else _number("x", lambda: place),
            series=series,
            label=str(place),
            expected=_expected(experiment, at, name, request),
            control=name,
            steps=_number("steps", lambda: experiment.steps(at)),
            baseline=_baseline(experiment, at, asked.points),
            cache=_cache(_called("cache", lambda: experiment.cache(at, numbers))),
        )
    except _Flaw as flaw:
        label = str(at.get(experiment.x, ""))
        x = float(label) if label.isdecimal() else 0.0
        return Prediction(case.id, x, series, label, control=name, reason=str(flaw))


def _expected(experiment: Experiment, at: Point, name: str, request: Expect) -> Expected:
    control = next((c for c in experiment.controls if c.name == name), None)
    expect = (control.expect if control else None) or experiment.expect
    expected = _called("expect", lambda: expect(at, request.numbers))
    if flaw := flaw_of(expected, unit_of(experiment)):
        raise _Flaw(f"what expect returned {flaw}")
    assert isinstance(expected, Expected)
    value, low, high = float(expected.value), float(expected.low), float(expected.high)
    return replace(expected, value=value, low=low, high=high)  # whole numbers too


def _place(experiment: Experiment, at: Point, request: Expect) -> Any:
    return experiment.along(at, request.numbers) if experiment.along else at[experiment.x]


def _baseline(experiment: Experiment, at: Point, points: Mapping[str, Point]) -> str:
    """Return the id of the case that the ratio at *at* refers to; empty without a baseline."""
    function = experiment.baseline
    if function is None:
        return ""
    changes = _called("baseline", lambda: dict(function(at)))
    wanted = {**at, **changes}
    for name, point in points.items():
        if point == wanted:
            return name
    text = ", ".join(f"{name}={value}" for name, value in changes.items())
    raise _Flaw(f"its baseline ({text}) is not among the points")


def _cache(value: object) -> Any:
    if value not in ("", *get_args(Cache)):
        raise _Flaw(f"cache returned {value!r}, and not {', '.join(get_args(Cache))} or nothing")
    return value


def _number(what: str, function: Callable[[], Any]) -> float:
    """Return the number of at least 0 that *function* computes."""
    value = _called(what, function)
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise _Flaw(f"{what} is {value!r}, which is not a number of at least 0")
    if what == "steps" and value == 0:
        raise _Flaw("steps is 0, by which y would be divided")
    return float(value)


def _called(what: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except UnknownNumber as unknown:
        raise _Flaw(str(unknown.args[0])) from None
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else ""
        raise _Flaw(f"{what} raised {type(error).__name__}: {text}"[:300]) from None
