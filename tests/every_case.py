"""Pick a supported case of each implementation of each workload, at odd sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch

from gpuperf.errors import CannotMeasure
from gpuperf.measure.device import open_device
from gpuperf.measure.inputs import ByteCounter, TooLarge
from gpuperf.measure.registry import load_source
from gpuperf.model.workload import Axis, Implementation, Point, Workload

LOADED, BROKEN = load_source("gpuperf.kernels")
# Collectives need several processes: test_collectives.py holds them to their promises.
FOUND = {name: workload for name, workload in LOADED.items() if not workload.world}


CPU = open_device("cpu")


# Tried in this order, one number an axis, until an implementation takes them: odd and all unequal
# first; then what is as crooked as a rule of 8 or 16 allows.
SIZES = (
    (33, 47, 65, 5, 7, 3),
    (3, 5, 33, 65, 7, 9),
    (33, 40, 72, 24, 56, 8),
    (33, 48, 80, 16, 112, 32),
    (48, 80, 112, 16, 32, 64),
    (2, 4, 2, 33, 17, 16),  # heads that a group divides, and a head of whole tiles
)


MOST_BYTES = 2**26  # of inputs


COUNTING = {"causal_flops"}  # axes that change what is counted, not what is computed


def words(workload: Workload) -> Iterator[dict[str, str]]:
    """Every combination of the axes that have choices: each dtype, each mode.

    Optional axes leave their defaults in all combinations with each other and with each mode, but
    not with other choices of the other axes.
    """
    axes = [axis for axis in workload.axes if axis.choices]
    for values in itertools.product(
        *((axis.default,) if axis.name in COUNTING else axis.choices for axis in axes)
    ):
        chosen = {axis.name: value for axis, value in zip(axes, values, strict=True)}
        moved = [axis for axis in axes if axis.optional and chosen[axis.name] != axis.default]
        fixed = [axis for axis in axes if not (axis.optional or axis.name == "mode")]
        if not moved or all(chosen[a.name] in (a.default, a.choices[0]) for a in fixed):
            yield chosen


def options(implementation: Implementation) -> Iterator[dict[str, Any]]:
    """The default options, then each other value of each option alone."""
    default = {name: values[0] for name, values in implementation.options.items()}
    yield default
    for name, values in implementation.options.items():
        for value in values[1:]:
            yield {**default, name: value}


def odd_points(workload: Workload, chosen: Mapping[str, str]) -> Iterator[Point]:
    """Points with *chosen* words and crooked numbers, small enough to compute here.

    Optional numbers that have their least by default keep it: tests of the workload try others.
    """
    tried = []
    for sizes in SIZES:
        numbers = itertools.cycle(sizes)

        def value(axis: Axis, numbers: Iterator[int] = numbers) -> Any:
            if axis.choices:
                return chosen[axis.name]
            kept = axis.optional and axis.default == axis.minimum
            return axis.default if kept else max(next(numbers), axis.minimum)

        point = Point({axis.name: value(axis) for axis in workload.axes})
        if point in tried:
            continue
        tried.append(point)
        counter = ByteCounter()
        try:
            workload.inputs(point, counter)
        except (TooLarge, CannotMeasure):
            continue
        if counter.bytes <= MOST_BYTES:
            yield point


def every_case() -> Iterator[Any]:
    """(workload, implementation, point, options) of each case that the CPU computes, as parameters
    with a name."""
    for workload in FOUND.values():
        for implementation in workload.implementations:
            # Compiling takes seconds: one combination does.
            compiles = "compile" in implementation.name or implementation.name == "flex"
            combinations = filter(is_distinct, words(workload))
            for chosen in itertools.islice(combinations, 1 if compiles else None):
                point = supported_point(workload, implementation, chosen)
                for given in options(implementation) if point is not None else ():
                    values = ",".join(map(str, (*chosen.values(), *given.values())))
                    name = f"{workload.name}-{implementation.name}-{values}"
                    yield pytest.param(workload, implementation, point, given, id=name)


def is_distinct(chosen: Mapping[str, str]) -> bool:
    """Whether *chosen* words compute what no others do: without a mask, none is aligned."""
    return chosen.get("causal") != "no" or chosen["align"] == "lower-right"


def supported_point(
    workload: Workload, implementation: Implementation, chosen: Mapping[str, str]
) -> Point | None:
    """The most crooked point that *implementation* takes on the CPU; None where there is none."""
    if chosen["dtype"] not in CPU.facts.dtypes:
        return None
    taken = (p for p in odd_points(workload, chosen) if not implementation.supports(p, CPU.facts))
    return next(taken, None)


def pick(count: int, below: int) -> torch.Tensor:
    return torch.randint(below, (count,), generator=torch.Generator().manual_seed(2)).sort()[0]
