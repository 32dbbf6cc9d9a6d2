"""Which cases does a command line ask for?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from gpuperf.errors import UnknownName, UsageError
from gpuperf.model.contract import Contract, DeviceFacts, TimerName
from gpuperf.model.workload import Axis, Case, Description, Value
from gpuperf.units import parse_range

__all__ = ["default_contract", "plan_cases"]

MOST_CASES = 10_000


def plan_cases(
    description: Description,
    device: DeviceFacts,
    axes: Mapping[str, str],
    sizes: str | None = None,
    implementations: Sequence[str] = (),
) -> tuple[Case, ...]:
    """The cases, implementation by implementation, the last axis fastest.

    *axes* maps axis names to what was written for them; *sizes* sets the main axes together.
    Raises: UnknownName, UsageError.
    """
    by_name = {axis.name: axis for axis in description.axes}
    for name in axes:
        if name not in by_name:
            raise UnknownName(f"axis of {description.name}", name, by_name)
    values = {name: _values(by_name[name], text) for name, text in axes.items()}
    together = _sizes(sizes)
    cases = [
        Case(description.name, implementation, point, options, description.source)
        for implementation, options in _implementations(description, implementations)
        for point in _points(description, device, values, together)
    ]
    if len(cases) > MOST_CASES:
        raise UsageError(f"{len(cases)} cases are more than {MOST_CASES}", "narrow a range")
    return tuple(dict((case.id, case) for case in cases).values())


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return parse_range(text)
    except ValueError as error:
        raise UsageError(f"--sizes: {error}", "for example --sizes 128:8192") from None


def _values(axis: Axis, text: str) -> tuple[Value, ...]:
    if axis.choices:
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in axis.choices and name != axis.default:
                raise UnknownName(axis.name, name, axis.choices)
        return tuple(dict.fromkeys(names))
    try:
        return parse_range(text, axis.minimum)
    except ValueError as error:
        raise UsageError(f"--{axis.name}: {error}", f"for example --{axis.name} 512,4096") from None


def _implementations(
    description: Description, wanted: Sequence[str]
) -> list[tuple[str, Mapping[str, Value]]]:
    by_name = {i.name: i for i in description.implementations}
    for name in wanted:
        if name not in by_name:
            raise UnknownName(f"implementation of {description.name}", name, by_name)
    return [
        (name, {option: values[0] for option, values in by_name[name].options.items()})
        for name in (dict.fromkeys(wanted) or by_name)
    ]


def _points(
    description: Description,
    device: DeviceFacts,
    values: Mapping[str, tuple[Value, ...]],
    together: tuple[int, ...] | None,
) -> list[dict[str, Value]]:
    """Every combination; main axes that are not given themselves follow `--sizes` together."""
    steps: Sequence[int | None] = together if together is not None else (None,)
    points: list[dict[str, Value]] = []
    for size in steps:
        columns = []
        for axis in description.axes:
            if axis.name in values:
                columns.append(values[axis.name])
            elif axis.main and size is not None:
                columns.append((size,))
            else:
                columns.append((axis.default,))
        points += [
            _settled(dict(zip((a.name for a in description.axes), combination, strict=True)), device)
            for combination in itertools.product(*columns)
        ]
    return points


def _settled(point: dict[str, Value], device: DeviceFacts) -> dict[str, Value]:
    """`auto` as a dtype is bf16 on a GPU that has it, and fp32 elsewhere."""
    if point.get("dtype") == "auto":
        bf16 = device.kind != "cpu" and "bf16" in device.dtypes
        return {**point, "dtype": "bf16" if bf16 else "fp32"}
    return point


def default_contract(
    device: DeviceFacts,
    timer: TimerName | None = None,
    precision: float = 0.01,
    budget_s: float = 2.0,
) -> Contract:
    """How times are taken on *device* unless the user says otherwise.

    On a GPU an idle gap before each sample lets its clock recover. A CPU needs none.
    """
    if device.kind == "cpu":
        return Contract(
            timer=timer or "wall",
            gap_s=0.0,
            precision=precision,
            budget_s=budget_s,
            min_samples=10,
        )
    return Contract(
        timer=timer or ("blocked" if device.kind == "cuda" else "events"),
        precision=precision,
        budget_s=budget_s,
    )
