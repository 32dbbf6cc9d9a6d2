"""Plan the cases of an experiment and of its controls, and store the figures that it measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuperf.errors import UnknownName
from gpuperf.model.experiment import ExperimentDescription, Number
from gpuperf.model.protocol import Opened
from gpuperf.model.workload import Case, Description, Value
from gpuperf.run.cache import fetch, keep
from gpuperf.run.ceilings import device_key
from gpuperf.run.plan import plan_cases


@dataclass(frozen=True)
class ExperimentCase:
    """A case of an experiment, and the name of the control it belongs to (empty: none)."""

    case: Case
    control: str = ""


def plan_experiment(
    experiment: ExperimentDescription,
    workload: Description,
    axes: Mapping[str, str],
    implementations: Sequence[str] = (),
    world: int | None = None,
) -> tuple[ExperimentCase, ...]:
    """Plan the points of *experiment*, then its controls; *axes* replaces its values by texts.
    A gang has *world* ranks.

    Raises: UnknownName, UsageError.
    """
    usual = {name: _text(values) for name, values in experiment.axes.items()}
    known = {axis.name for axis in workload.axes}
    known |= {option for i in workload.implementations for option in i.options}
    for name in axes.keys() - known:
        raise UnknownName(f"axis of {experiment.name}", name, known)
    chosen = tuple(implementations) or experiment.implementations
    cases = plan_cases(workload, {**usual, **axes}, None, chosen, world)
    planned = [ExperimentCase(case) for case in cases]
    first = {name: _text(values[:1]) for name, values in experiment.axes.items()}
    given = {name: text for name, text in axes.items() if name not in usual}
    for control in experiment.controls:
        at = {name: _text(values) for name, values in control.at.items()}
        cases = plan_cases(
            workload, {**first, **given, **at}, None, control.implementations or chosen, world
        )
        planned += [ExperimentCase(case, control.name) for case in cases]
    return tuple(planned)


def _text(values: Sequence[Value]) -> str:
    return ",".join(map(str, values))


def kept_numbers(opened: Opened) -> Mapping[str, Number]:
    """Return the figures that experiments measured earlier on this device and software."""
    return fetch("lab", device_key(opened), dict[str, Number]) or {}


def keep_numbers(opened: Opened, numbers: Mapping[str, Number]) -> None:
    """Store *numbers* beside those measured before, for the experiments that use them."""
    if numbers:
        keep("lab", device_key(opened), {**kept_numbers(opened), **numbers})


def in_order(experiments: Sequence[ExperimentDescription]) -> tuple[ExperimentDescription, ...]:
    """Sort *experiments* so that each comes after those whose figures it uses."""
    waiting = {experiment.name: experiment for experiment in experiments}
    ordered: list[ExperimentDescription] = []
    while waiting:
        free = [e for e in waiting.values() if not set(e.after) & waiting.keys() - {e.name}]
        for experiment in free or list(waiting.values())[:1]:  # a circle begins anywhere
            ordered.append(waiting.pop(experiment.name))
    return tuple(ordered)
