"""Plan the cases of an experiment and of its controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuperf.errors import UnknownName
from gpuperf.model.experiment import ExperimentDescription
from gpuperf.model.workload import Case, Description, Value
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
) -> tuple[ExperimentCase, ...]:
    """Plan the points of *experiment*, then its controls; *axes* replaces its values by texts.

    Raises: UnknownName, UsageError.
    """
    usual = {name: _text(values) for name, values in experiment.axes.items()}
    known = {axis.name for axis in workload.axes}
    known |= {option for i in workload.implementations for option in i.options}
    for name in axes.keys() - known:
        raise UnknownName(f"axis of {experiment.name}", name, known)
    chosen = tuple(implementations) or experiment.implementations
    planned = [
        ExperimentCase(case) for case in plan_cases(workload, {**usual, **axes}, None, chosen)
    ]
    first = {name: _text(values[:1]) for name, values in experiment.axes.items()}
    given = {name: text for name, text in axes.items() if name not in usual}
    for control in experiment.controls:
        at = {name: _text(values) for name, values in control.at.items()}
        cases = plan_cases(
            workload, {**first, **given, **at}, None, control.implementations or chosen
        )
        planned += [ExperimentCase(case, control.name) for case in cases]
    return tuple(planned)


def _text(values: Sequence[Value]) -> str:
    return ",".join(map(str, values))
