"""Define a task in a worker, and load it by its format."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gpuperf.judge.task import Side, Submission, TaskCase, TaskSource
from gpuperf.model.cost import Cost


@dataclass(frozen=True)
class Problem:
    """A task as the answers' worker holds it.

    `make(seed)` returns the positional arguments of a call; `init` are those of the constructor of
    a module, and `state` its weights. `call(*arguments)` computes the reference in its own dtype,
    and `exact(*arguments)` in float64. `check(arguments, outputs)` is the format's own check, which
    returns a reason to refuse, or nothing. `compare(arguments, outputs, harsh)` replaces the
    comparison, and returns the error and its bound. `kinds` are the kinds of values that the task
    allows (None: to be found out), drawn by `make_kind(seed, kind)`. `relative` and `absolute` are
    tolerances that the task declares. With `tf32` its products of fp32 may round to TF32. `terms`
    are the most products that an element of an operator's result adds (0: it multiplies no
    matrices). A `pure` reference has left its arguments as they were.
    """

    make: Callable[[int], Sequence[Any]]
    call: Callable[..., Any]
    exact: Callable[..., Any] | None = None
    check: Callable[[Sequence[Any], Any], str] | None = None
    compare: Callable[[Sequence[Any], list[torch.Tensor], bool], tuple[float, float]] | None = None
    init: Sequence[Any] = ()
    state: Mapping[str, torch.Tensor] = field(default_factory=dict)
    kinds: tuple[str, ...] | None = None
    make_kind: Callable[[int, str], Sequence[Any]] | None = None
    cost: Cost | None = None
    relative: float = 0.0
    absolute: float = 0.0
    tf32: bool = False
    terms: int = 0
    pure: bool = False


# Binds the call of a side to the arguments in one slot.
Bind = Callable[[Sequence[Any]], Callable[[], Any]]
# Builds a side from the arguments of the constructor, the weights and a seed.
Builder = Callable[[Sequence[Any], Mapping[str, torch.Tensor], int], Bind]

READERS = {
    "kernelbench": "gpuperf.judge.inside.kernelbench",
    "gpumode": "gpuperf.judge.inside.gpumode",
    "flashinfer": "gpuperf.judge.inside.flashinfer",
    "gpuperf": "gpuperf.judge.inside.workload",
}


def load_problem(task: TaskSource, case: TaskCase, seed: int, device: torch.device) -> Problem:
    """Load the reference of *task*, whose inputs and answers are on *device*.

    Raises: GpuperfError, and what its code raises.
    """
    reader = importlib.import_module(READERS[task.format])
    problem: Problem = reader.problem(task, case, seed, device)
    return problem


def load_builder(
    task: TaskSource, case: TaskCase, submission: Submission, side: Side, device: torch.device
) -> Builder:
    """Import the code of *side*, which runs on *device*. Raises: GpuperfError, and what its code
    raises."""
    reader = importlib.import_module(READERS[task.format])
    builder: Builder = reader.builder(task, case, submission, side, device)
    return builder


def on_device(value: Any, device: torch.device) -> Any:
    """Return *value* with its tensors on *device*."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(on_device(item, device) for item in value)
    if isinstance(value, dict):
        return {key: on_device(item, device) for key, item in value.items()}
    return value


def compiled_for(side: Side, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function*, by torch.compile for the side `compiled`, once for all slots."""
    if side != "compiled":
        return function
    made: Callable[..., Any] = torch.compile(function, dynamic=False)
    return made


def widened(value: Any) -> Any:
    """Return *value* with its floating-point tensors in float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(map(widened, value))
    return value
