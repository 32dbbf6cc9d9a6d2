"""Measure an experiment: predictions first, then its cases and controls, then the ruling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.lab.judging import judge
from gpuperf.lab.study import Study, study_run
from gpuperf.lab.table import needs_text
from gpuperf.model.contract import Counting
from gpuperf.model.experiment import COUNTED, ExperimentDescription, Number, Predictions, Ruling
from gpuperf.model.peaks import Peaks
from gpuperf.model.protocol import Expect, Opened
from gpuperf.model.workload import Case, Description
from gpuperf.peaks.numbers import numbers_of, numbers_of_tuning
from gpuperf.run.experiments import ExperimentCase, keep_numbers, kept_numbers, plan_experiment
from gpuperf.run.plan import settle_dtype
from gpuperf.run.supervisor import Supervisor
from gpuperf.verb.measuring import Outcome, Request, measure_planned
from gpuperf.verb.options import Options
from gpuperf.verb.parse import axis_options, split
from gpuperf.verb.progress import say


@dataclass(frozen=True)
class Finding:
    """An experiment that was measured, or the reason why it was not."""

    experiment: ExperimentDescription
    outcome: Outcome | None = None
    study: Study | None = None
    ruling: Ruling | None = None
    reason: str = ""


def run_experiment(
    supervisor: Supervisor,
    experiment: ExperimentDescription,
    workload: Description,
    options: Options,
    processes: int = 1,
) -> Finding:
    """Measure *experiment* into a new run file and rule on it.

    Raises: UsageError, UnknownName; CannotMeasure where the device lacks what it needs.
    """
    _refuse_gang(experiment, options)
    axes = axis_options(options.words, workload)
    if options.dtype is not None:
        axes["dtype"] = options.dtype
    planned = plan_experiment(experiment, workload, axes, split(options.impl), options.gpus)
    opened = supervisor.open()
    if missing := lacking(experiment, supervisor):
        raise CannotMeasure(missing, "`gpuperf lab list` shows what each experiment needs")
    planned = _settled(planned, workload, opened)
    outcome = _measure(supervisor, experiment, planned, opened, options, processes)
    study = study_run(outcome.run)
    ruling = judge(study)
    if ruling.verdict != "INCONCLUSIVE":
        keep_numbers(opened, _given(experiment, ruling))
    return Finding(experiment, outcome, study, ruling)


def _refuse_gang(experiment: ExperimentDescription, options: Options) -> None:
    """Refuse an experiment of a gang without one, or the reverse. Raises: UsageError."""
    needed = "gang" in experiment.needs
    if needed and options.gpus is None:
        raise UsageError(
            f"{experiment.name} needs several GPUs, and --gpus is not given", "--gpus 2"
        )
    if not needed and options.gpus is not None:
        raise UsageError(
            f"{experiment.name} is of one device, and --gpus {options.gpus} is given",
            "leave --gpus out",
        )


def lacking(experiment: ExperimentDescription, supervisor: Supervisor) -> str:
    """Return why *experiment* cannot run on the device of *supervisor*, in a sentence; empty if it
    can."""
    device, needs = supervisor.open().device, needs_text(experiment)
    if "cuda" in experiment.needs and device.kind != "cuda":
        return f"{experiment.name} needs {needs}, and the device is {device.name}"
    if "peer" in experiment.needs and supervisor.survey().gpus < 2:
        return f"{experiment.name} needs {needs}, and torch can use one GPU here"
    return ""


def counting_of(experiment: ExperimentDescription) -> Counting:
    """Return the hardware counters that the y of *experiment* is computed from."""
    if experiment.y not in COUNTED:
        return "off"
    return "auto" if experiment.y.startswith("dram") else "kernels"


def _settled(
    planned: Sequence[ExperimentCase], workload: Description, opened: Opened
) -> tuple[ExperimentCase, ...]:
    def settled(case: Case) -> Case:
        return settle_dtype([case], workload, opened.device)[0]

    return tuple(replace(each, case=settled(each.case)) for each in planned)


def _measure(
    supervisor: Supervisor,
    experiment: ExperimentDescription,
    planned: Sequence[ExperimentCase],
    opened: Opened,
    options: Options,
    processes: int,
) -> Outcome:
    cases = tuple({each.case.id: each.case for each in planned}.values())

    def predict(peaks: Peaks | None, ceilings: Peaks | None) -> Predictions:
        measured = {**kept_numbers(opened), **numbers_of_tuning(opened.tuning)}
        numbers = numbers_of(peaks, ceilings, opened.device, measured)
        request = Expect(
            experiment.name,
            experiment.source,
            tuple(each.case for each in planned),
            tuple(each.control for each in planned),
            numbers,
        )
        predictions = supervisor.predict(request)
        for reason in dict.fromkeys(p.reason for p in predictions if p.reason):
            say(f"{experiment.name}: a point has no prediction: {reason}")
        return Predictions(experiment, numbers, predictions)

    conditions = replace(options.conditions, counting=counting_of(experiment))
    request = Request(
        "lab",
        options,
        conditions,
        study=f"lab:{experiment.name}",
        processes=processes,
        predict=predict,
    )
    return measure_planned(supervisor, request, cases, experiment.name)


def _given(experiment: ExperimentDescription, ruling: Ruling) -> Mapping[str, Number]:
    """Return the fitted parameters that other experiments may use, by their names."""
    given: dict[str, Number] = {}
    for fitted in ruling.fitted:
        if fitted.name in experiment.gives and fitted.value >= 0:
            number = Number(fitted.value, experiment.unit, experiment.name)
            given.setdefault(fitted.name, number)
    return given
