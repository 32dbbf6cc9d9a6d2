"""Load tasks of GPU MODE: `generate_input`, `check_implementation` and `ref_kernel`."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from gpuperf.errors import WorkloadError
from gpuperf.judge.inside.draws import seed_all
from gpuperf.judge.inside.problem import Bind, Builder, Problem, compiled_for, on_device
from gpuperf.judge.task import Side, Submission, TaskCase, TaskSource
from gpuperf.measure.registry import load_module


def problem(task: TaskSource, case: TaskCase, seed: int, device: torch.device) -> Problem:
    """Load the generator, the reference and the checker of a task."""
    _serve_modules(task)
    module = load_module(task.reference)
    generate, reference = _named(module, "generate_input"), _named(module, "ref_kernel")
    names = inspect.signature(generate).parameters
    checker = getattr(module, "check_implementation", None)

    def make(seed: int) -> Sequence[Any]:
        seed_all(seed)
        drawn = {"seed": seed % 2**31} if "seed" in names else {}
        return [on_device(generate(**{**case.values, **drawn}), device)]

    def call(data: Any) -> Any:
        with torch.no_grad():
            return reference(data)

    def checked(arguments: Sequence[Any], outputs: list[torch.Tensor]) -> str:
        assert checker is not None
        said = checker(arguments[0], outputs[0] if len(outputs) == 1 else tuple(outputs))
        if isinstance(said, tuple):
            return "" if said[0] else str(said[1]) or "it is wrong"
        return str(said or "")

    return Problem(make, call, check=checked if checker else None, kinds=("nominal",))


def builder(
    task: TaskSource, case: TaskCase, submission: Submission, side: Side, device: torch.device
) -> Builder:
    """Import the function of *side*."""
    _serve_modules(task)
    name = "custom_kernel" if side == "submission" else "ref_kernel"
    module = load_module(submission.path if side == "submission" else task.reference)
    kernel = compiled_for(side, _named(module, name))

    def build(init: Sequence[Any], state: Mapping[str, torch.Tensor], seed: int) -> Bind:
        def bind(arguments: Sequence[Any]) -> Callable[[], Any]:
            def call() -> Any:
                with torch.no_grad():
                    return kernel(*arguments)

            return call

        return bind

    return build


class _Finder:
    """Finds the modules beside a reference, such as `task` and `utils`, by their names alone."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the specification of the module *name*, if the task has it."""
        if name not in self._modules:
            return None
        return importlib.util.spec_from_file_location(name, self._modules[name])


def _serve_modules(task: TaskSource) -> None:
    sys.meta_path.append(_Finder(task.definition.get("modules", {})))


def _named(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        raise WorkloadError(
            f"{module.__name__.removeprefix('gpuperf_user_')}.py has no {name!r}",
            "GPU MODE's form has generate_input, ref_kernel, check_implementation, custom_kernel",
        )
    return getattr(module, name)
