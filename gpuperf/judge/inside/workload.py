"""Load tasks in gpuperf's own form: a `Workload`, and a submission's function `build`.

Results are compared as `measure.checks` compares them: a product whole by Freivalds's test, other
results whole by pieces, each with the tolerance that the workload declares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gpuperf.errors import CannotMeasure, UnknownName, UsageError, WorkloadError
from gpuperf.judge.inside.problem import Bind, Builder, Problem, compiled_for
from gpuperf.judge.task import Side, Submission, TaskCase, TaskSource
from gpuperf.measure.checks import compare
from gpuperf.measure.inputs import bind_make
from gpuperf.measure.registry import load_module, load_source
from gpuperf.measure.verify import picker
from gpuperf.model.workload import Axis, Implementation, Point, Value, Workload


def problem(task: TaskSource, case: TaskCase, seed: int, device: torch.device) -> Problem:
    """Load the workload at one point."""
    workload, point = _workload(task, case)
    if workload.mutates or workload.dropout(point) is not None:
        raise CannotMeasure(f"{workload.name} changes its inputs, or draws random numbers")
    first, options = _first(workload)
    flops = [flop for flop in workload.cost(point).flops if flop.kind == "matmul"]
    accumulate = flops[0].accumulate if flops else ""

    def make_kind(seed: int, kind: str) -> Sequence[Any]:
        draw = None if kind == "nominal" else kind
        made = bind_make(device, seed % 2**31, "randn", draw)  # type: ignore[arg-type]
        return [dict(workload.inputs(point, made))]

    def call(inputs: Mapping[str, Any]) -> Any:
        return first.build(inputs, point, options)()

    def check(
        arguments: Sequence[Any], outputs: list[torch.Tensor], harsh: bool
    ) -> tuple[float, float]:
        pick = picker(torch.Generator().manual_seed(seed))
        output = outputs[0] if len(outputs) == 1 else tuple(outputs)
        found = compare(
            workload, point, arguments[0], output, accumulate, pick, None, math.inf, harsh
        )
        return found.error, found.tolerance

    return Problem(
        lambda seed: make_kind(seed, "nominal"),
        call,
        compare=check,
        kinds=("nominal", *workload.draws(point)),
        make_kind=make_kind,
        cost=workload.cost(point),
    )


def builder(
    task: TaskSource, case: TaskCase, submission: Submission, side: Side, device: torch.device
) -> Builder:
    """Import `build` of the submission; the reference's is the workload's first implementation."""
    workload, point = _workload(task, case)
    first, options = _first(workload)
    make = first.build
    if side == "submission":
        module, options = load_module(submission.path), {}
        if not hasattr(module, "build"):
            raise WorkloadError(
                f"{submission.name} has no function 'build'", "build(inputs, point, options)"
            )
        make = module.build

    def build(init: Sequence[Any], state: Mapping[str, torch.Tensor], seed: int) -> Bind:
        def bind(arguments: Sequence[Any]) -> Callable[[], Any]:
            return compiled_for(side, make(arguments[0], point, options))

        return bind

    return build


def _workload(task: TaskSource, case: TaskCase) -> tuple[Workload, Point]:
    """Return the one workload of a file, and the point of *case*. Raises: UsageError."""
    workloads = list(load_source(task.reference)[0].values())
    if len(workloads) != 1:
        raise UsageError(f"{task.reference} has {len(workloads)} workloads", "the judge takes one")
    workload = workloads[0]
    axes = {axis.name: axis for axis in workload.axes}
    for name, value in case.values.items():
        if name not in axes:
            raise UnknownName(f"axis of {workload.name}", name, axes)
        _refuse_value(axes[name], value)
    values: dict[str, Value] = {
        axis.name: "fp32" if axis.default == "auto" else axis.default for axis in workload.axes
    }
    return workload, Point({**values, **case.values})


def _refuse_value(axis: Axis, value: Value) -> None:
    """Raise UsageError for a *value* of `--point` that *axis* does not take."""
    if axis.choices:
        if value not in axis.choices and value != axis.default:
            raise UnknownName(f"{axis.name} for --point", str(value), axis.choices)
    elif not isinstance(value, int) or value < axis.minimum:
        raise UsageError(
            f"--point {axis.name}={value!s:.60}: {axis.name} must be a whole number from "
            f"{axis.minimum} up",
            f"for example --point {axis.name}={axis.default}",
        )


def _first(workload: Workload) -> tuple[Implementation, Mapping[str, Value]]:
    """Return the implementation that submissions are compared with, and its default options."""
    names = workload.standard or tuple(i.name for i in workload.implementations)
    first = next(i for i in workload.implementations if i.name == names[0])
    return first, {name: values[0] for name, values in first.options.items() if values}
