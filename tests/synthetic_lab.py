"""Devices whose times follow a law that is given, with noise, for the judge of experiments."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpuperf.lab.study import LabPoint, Measured, Study
from gpuperf.model.experiment import (
    ControlDescription,
    Expected,
    ExperimentDescription,
    Form,
    Law,
    Prediction,
    about,
)

NOISE, HALF = 0.005, 0.01  # standard deviation of a median, and half its 95 % interval
CONTROL = 1.0  # what the control must be

Theory = Callable[[float], float]


@dataclass(frozen=True)
class Shape:
    """A law with its theory by series, the x of its points, and the same laws moved."""

    form: Form
    theory: Mapping[str, Theory]
    xs: tuple[float, ...]
    wrong: Mapping[str, Mapping[str, Theory]]
    band: float = 0.05


def doubling(first: float, last: float) -> tuple[float, ...]:
    xs = [first]
    while xs[-1] < last:
        xs.append(xs[-1] * 2)
    return tuple(xs)


def steeper(theory: Mapping[str, Theory], factor: float) -> dict[str, Theory]:
    """The same law with every slope (and so every y) *factor* times as large."""
    return {name: lambda x, f=f: factor * f(x) for name, f in theory.items()}  # type: ignore[misc]


def moved(theory: Mapping[str, Theory], factor: float) -> dict[str, Theory]:
    """The same law with its knee at *factor* times the x."""
    return {name: lambda x, f=f: f(x / factor) for name, f in theory.items()}  # type: ignore[misc]


LINE: dict[str, Theory] = {"": lambda x: 3.0 * x}
LEVELS: dict[str, Theory] = {"": lambda x: 30.0 if x < 300 else 270.0 if x < 60_000 else 700.0}
ROOF: dict[str, Theory] = {"": lambda x: 4.0e12 * min(1.0, x / 1.5e6)}
FLOOR: dict[str, Theory] = {"": lambda x: 5e-6 * max(1.0, x / 2e7)}
LATENCY: dict[str, Theory] = {"": lambda x: max(4.0 / x, 1.0)}
CROSSING: dict[str, Theory] = {"flat": lambda x: 8.0, "rising": lambda x: 0.05 * x}
PAID: dict[str, Theory] = {"": lambda x: x / (20.0 + 0.3 * x)}


def slopes(theory: Mapping[str, Theory]) -> dict[str, Mapping[str, Theory]]:
    return {"slope +20 %": steeper(theory, 1.2), "slope −20 %": steeper(theory, 0.8)}


def knees(theory: Mapping[str, Theory]) -> dict[str, Mapping[str, Theory]]:
    return {"knee ×2": moved(theory, 2.0), "knee ÷2": moved(theory, 0.5)}


SHAPES = (
    Shape("points", LINE, tuple(range(1, 14)), slopes(LINE)),
    Shape("proportional", LINE, tuple(range(1, 14)), slopes(LINE)),
    Shape("plateaus", LEVELS, doubling(4, 2**20), slopes(LEVELS) | knees(LEVELS)),
    Shape("saturation", ROOF, doubling(2**14, 2**26), slopes(ROOF) | knees(ROOF)),
    Shape("floor", FLOOR, doubling(2**18, 2**30), slopes(FLOOR) | knees(FLOOR)),
    Shape("inverse", LATENCY, (1, 2, 3, 5, 6, 8, 12, 16, 24, 32), slopes(LATENCY) | knees(LATENCY)),
    Shape("crossover", CROSSING, doubling(2, 4096), slopes(CROSSING) | knees(CROSSING)),
    Shape("amortisation", PAID, doubling(1, 4096), slopes(PAID) | knees(PAID)),
)


def study_of(
    shape: Shape, truth: Mapping[str, Theory], seed: int, control: float = CONTROL
) -> Study:
    """What a device whose times follow *truth* would show of an experiment with *shape*."""
    noise = random.Random(seed)
    points = [
        _point(name, x, theory(x), truth[name](x), noise, shape.band)
        for name, theory in shape.theory.items()
        for x in shape.xs
    ]
    held = _point("", shape.xs[0], CONTROL, control, noise, 0.05)
    held = replace(held, prediction=replace(held.prediction, control="held"))
    return Study(description(shape), tuple(points), (held,))


def description(shape: Shape) -> ExperimentDescription:
    return ExperimentDescription(
        name="synthetic",
        question="Does the law hold?",
        op="none",
        workload_source="",
        source="",
        axes={},
        x="x",
        y="cycles_per_step",
        unit="cycles",
        series="implementation",
        controls=(ControlDescription("held", {}, "it must not move"),),
        law=Law(shape.form, band=max(shape.band, 0.05)),
    )


def _point(
    series: str, x: float, expected: float, true: float, noise: random.Random, band: float
) -> LabPoint:
    value = true * math.exp(noise.gauss(0.0, NOISE))
    prediction = Prediction(f"{series}/{x}", x, series, f"{x:g}", _about(expected, band))
    return LabPoint(prediction, Measured(value, value * (1 - HALF), value * (1 + HALF)))


def _about(value: float, band: float) -> Expected:
    return about(value, "cycles", "the law", band)
