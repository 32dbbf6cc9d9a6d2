"""Read tasks in KernelBench's form: `Model`, `ModelNew`, `get_inputs`, `get_init_inputs`.

Both modules are constructed after the same seed, which gives them equal weights; where names and
shapes of their weights agree, the submission gets the reference's weights as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from gpuperf.errors import WorkloadError
from gpuperf.judge.inside.draws import seed_all
from gpuperf.judge.inside.problem import Bind, Builder, Problem, compiled_for, on_device, widened
from gpuperf.judge.task import Side, Submission, TaskCase, TaskSource
from gpuperf.measure.registry import load_module


def problem(task: TaskSource, case: TaskCase, seed: int, device: torch.device) -> Problem:
    """Load `Model` and the functions that make its inputs."""
    module = load_module(task.reference)
    torch.manual_seed(seed)
    init = list(_named(module, "get_init_inputs")()) if hasattr(module, "get_init_inputs") else []
    get_inputs = _named(module, "get_inputs")
    torch.manual_seed(seed)
    model = _named(module, "Model")(*init).to(device)
    wide = copy.deepcopy(model).double()

    def make(seed: int) -> Sequence[Any]:
        seed_all(seed)
        with device:  # large inputs are drawn fast there
            return list(on_device(get_inputs(), device))

    def call(*arguments: Any) -> Any:
        with torch.no_grad():
            return model(*arguments)

    def exact(*arguments: Any) -> Any:
        with torch.no_grad():
            return wide(*map(widened, arguments))

    state = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    return Problem(make, call, exact, init=init, state=state)


def builder(
    task: TaskSource, case: TaskCase, submission: Submission, side: Side, device: torch.device
) -> Builder:
    """Import the module of *side*."""
    module = load_module(submission.path if side == "submission" else task.reference)
    name = "ModelNew" if side == "submission" and hasattr(module, "ModelNew") else "Model"
    kind = _named(module, name)

    def build(init: Sequence[Any], state: Mapping[str, torch.Tensor], seed: int) -> Bind:
        torch.manual_seed(seed)
        model = kind(*init)
        if isinstance(model, torch.nn.Module):
            _give_weights(model, state)
            model = model.to(device)
        function = compiled_for(side, model)

        def bind(arguments: Sequence[Any]) -> Callable[[], Any]:
            def call() -> Any:
                with torch.no_grad():
                    return function(*arguments)

            return call

        return bind

    return build


def _give_weights(model: torch.nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Copy the reference's weights into *model*, if it has the same ones."""
    own = model.state_dict()
    if own.keys() == state.keys() and all(own[n].shape == state[n].shape for n in own):
        model.load_state_dict({name: value.clone() for name, value in state.items()})


def _named(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        raise WorkloadError(
            f"{module.__name__.removeprefix('gpuperf_user_')}.py has no {name!r}",
            "KernelBench's form has Model, ModelNew, get_inputs and get_init_inputs",
        )
    return getattr(module, name)
