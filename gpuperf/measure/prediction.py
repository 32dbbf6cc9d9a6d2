"""Ask an experiment what it expects of each case, before anything is timed.

An experiment's functions are a user's code: one that raises, or returns a value that no measurement
can have, leaves its case without a prediction and with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
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
from gpuperf.model.workload import Case, Point, case_id


class _Flaw(Exception):
    """A function of the experiment failed at a point, in a sentence."""


def point_of(case: Case) -> Point:
    """Return the point that an experiment's functions get: the axes, options and implementation."""
    return Point({**case.point, **case.options, "implementation": case.implementation})


def predict(experiment: Experiment, request: Expect) -> tuple[Prediction, ...]:
    """Return the prediction of each case of *request*; `reason` says why one is missing."""
    pairs = zip(request.cases, request.controls, strict=True)
    return tuple(_predict(experiment, case, control, request) for case, control in pairs)


def _predict(experiment: Experiment, case: Case, name: str, request: Expect) -> Prediction:
    at, numbers = point_of(case), request.numbers
    series = str(at.get(experiment.series, ""))
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
            baseline=_called("baseline", lambda: _baseline(experiment, case, at)),
            cache=_cache(_called("cache", lambda: experiment.cache(at, numbers))),
        )
    except _Flaw as flaw:
        return Prediction(case.id, 0.0, series, control=name, reason=str(flaw))


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


def _baseline(experiment: Experiment, case: Case, at: Point) -> str:
    """Return the id of the case that the ratio at *at* refers to; empty without a baseline."""
    if experiment.baseline is None:
        return ""
    changes = dict(experiment.baseline(at))
    implementation = str(changes.pop("implementation", case.implementation))
    return case_id(case.op, implementation, {**case.point, **case.options, **changes})


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
