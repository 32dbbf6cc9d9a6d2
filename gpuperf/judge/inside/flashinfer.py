"""Load flashinfer-bench definitions, and solutions in Python or Triton."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gpuperf.errors import CannotMeasure, WorkloadError
from gpuperf.judge.inside.layout import dtype_of
from gpuperf.judge.inside.problem import Bind, Builder, Problem, compiled_for, widened
from gpuperf.judge.task import Side, Submission, TaskCase, TaskSource
from gpuperf.measure.registry import load_module

MOST_INTEGER = 8  # random integers are from 0 to 7, which serve as flags and small indices


def problem(task: TaskSource, case: TaskCase, seed: int, device: torch.device) -> Problem:
    """Load the reference of a definition, and draw its inputs for one workload."""
    run, outputs = _reference(task), list(task.definition["outputs"])
    sizes = _sizes(task, case)

    def make(seed: int) -> Sequence[Any]:
        generator = torch.Generator(device).manual_seed(seed)
        wanted = case.values.get("inputs", {})
        return [
            _draw(spec, wanted.get(name, {"type": "random"}), sizes, generator, name)
            for name, spec in task.definition["inputs"].items()
        ]

    def call(*arguments: Any) -> Any:
        with torch.no_grad():
            return _in_order(run(*arguments), outputs)

    def exact(*arguments: Any) -> Any:
        return call(*map(widened, arguments))

    tolerance = case.values.get("tolerance") or {}
    return Problem(
        make,
        call,
        exact,
        relative=float(tolerance.get("max_rtol", 0.0)),
        absolute=float(tolerance.get("max_atol", 0.0)),
    )


def builder(
    task: TaskSource, case: TaskCase, submission: Submission, side: Side, device: torch.device
) -> Builder:
    """Import the entry point of *side*."""
    outputs = list(task.definition["outputs"])
    if side != "submission":
        function = compiled_for(side, _reference(task))
    else:
        module = load_module(submission.path)
        name = submission.entry or "run"
        if not hasattr(module, name):
            raise WorkloadError(f"{submission.name} has no function {name!r}")
        function = getattr(module, name)
    writes = submission.writes_outputs and side == "submission"
    sizes = _sizes(task, case)
    specs = list(task.definition["outputs"].values())

    def build(init: Sequence[Any], state: Mapping[str, torch.Tensor], seed: int) -> Bind:
        def bind(arguments: Sequence[Any]) -> Callable[[], Any]:
            def call() -> Any:
                with torch.no_grad():
                    if not writes:
                        return _in_order(function(*arguments), outputs)
                    results = [_empty(spec, sizes, device) for spec in specs]
                    function(*arguments, *results)
                    return results[0] if len(results) == 1 else tuple(results)

            return call

        return bind

    return build


def _reference(task: TaskSource) -> Callable[..., Any]:
    """Run the source of the reference, and return its function `run`."""
    names: dict[str, Any] = {"__name__": "reference"}
    try:
        exec(compile(task.definition["reference"], "reference", "exec"), names)
    except Exception as error:
        raise WorkloadError(f"the reference of {task.entry} does not load: {error}") from None
    if not callable(names.get("run")):
        raise WorkloadError(f"the reference of {task.entry} has no function 'run'")
    function: Callable[..., Any] = names["run"]
    return function


def _sizes(task: TaskSource, case: TaskCase) -> Mapping[str, int]:
    axes = task.definition["axes"]
    constant = {name: axis["value"] for name, axis in axes.items() if axis.get("type") == "const"}
    sizes = {**constant, **case.values.get("axes", {})}
    for name in axes:
        if not isinstance(sizes.get(name), int):
            raise CannotMeasure(f"the axis {name!r} of {task.entry} has no value in {case.name}")
    return sizes


def _shape(spec: Mapping[str, Any], sizes: Mapping[str, int]) -> list[int]:
    return [sizes[axis] if isinstance(axis, str) else int(axis) for axis in spec["shape"]]


def _empty(spec: Mapping[str, Any], sizes: Mapping[str, int], device: torch.device) -> torch.Tensor:
    return torch.empty(_shape(spec, sizes), dtype=dtype_of(spec["dtype"]), device=device)


def _draw(
    spec: Mapping[str, Any],
    wanted: Mapping[str, Any],
    sizes: Mapping[str, int],
    generator: torch.Generator,
    name: str,
) -> Any:
    """Draw one input. Raises: CannotMeasure for a kind that the judge does not read."""
    kind = wanted.get("type", "random")
    if kind == "scalar":
        return wanted["value"]
    if kind != "random" or spec.get("shape") is None:
        raise CannotMeasure(f"the input {name!r} is of the kind {kind!r}, which is not read")
    dtype, shape, device = dtype_of(spec["dtype"]), _shape(spec, sizes), generator.device
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=generator, device=device).bool()
    if not dtype.is_floating_point:
        return torch.randint(MOST_INTEGER, shape, generator=generator, device=device).to(dtype)
    return torch.randn(shape, generator=generator, dtype=torch.float32, device=device).to(dtype)


def _in_order(result: Any, outputs: Sequence[str]) -> Any:
    """Return a result that is a dict as a tuple in the order of the definition."""
    if isinstance(result, dict):
        values = tuple(result[name] for name in outputs)
        return values[0] if len(values) == 1 else values
    return result
