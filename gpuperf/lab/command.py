"""Run `gpuperf lab`: list the experiments, measure one, or measure all into a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure, GpuperfError, Incomplete, UsageError
from gpuperf.files import check_writable
from gpuperf.lab.pace import CASE_S, Pace, by_cost
from gpuperf.lab.page import render_findings, tally, write_page
from gpuperf.lab.session import Finding, lacking, run_experiment
from gpuperf.lab.table import experiments_table
from gpuperf.model.experiment import ExperimentDescription
from gpuperf.run.catalogue import (
    Catalogue,
    experiment_catalogue,
    find_experiment,
    known_experiment,
    load_experiments,
)
from gpuperf.run.experiments import in_order
from gpuperf.run.session import new_run_id
from gpuperf.run.supervisor import Supervisor
from gpuperf.show.render import render
from gpuperf.show.screen import put, stdout_screen
from gpuperf.units import parse_duration
from gpuperf.verb import options as opt
from gpuperf.verb.printing import print_run, write_charts
from gpuperf.verb.progress import say

LIST, ALL = "list", "all"
MINUTE_S = 60.0
FEW = 5  # experiments that a message names
PRINTED = (opt.Format.TABLE, opt.Format.MD)  # formats that are printed one after the other


@opt.takes(
    "dtype",
    "impl",
    "device",
    "gpus",
    "threads",
    "timer",
    "precision",
    "deadline",
    "peaks",
    "out",
    "format",
    "seed",
    precision=0.005,
)
def lab(
    options: opt.Options,
    experiment: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of your own with one or several experiments.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            show_default=f"{CASE_S:g} s a case",
            help="Sample a case for at most this long. With `all`: the minutes that all "
            "experiments together may take.",
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1, max=200, help="Number of fresh processes that each measure all points."
        ),
    ] = 1,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 4 if a ruling is INCONCLUSIVE.")
    ] = False,
) -> int:
    """Predict an effect of the hardware, then measure it, and rule on the prediction.

    `lab list` names the experiments, `lab NAME` measures one of them, and `lab all --budget 10`
    measures all of them into a page (HTML and Markdown). The axes of an experiment are options:
    gpuperf lab NAME --stride 1,2,4
    """
    file = str(experiment) if experiment is not None else ""
    name, words = _name(options.words, file)
    options = replace(options, words=words)
    with options.supervisor() as supervisor:
        if name == LIST:
            _list(supervisor, options, file)
            return 0
        if name == ALL:
            return _all(supervisor, options, file, budget, processes, strict)
        options = replace(options, budget=_seconds(budget, 1.0) if budget else CASE_S)
        chosen, workload = find_experiment(name, supervisor.describe, file)
        finding = run_experiment(supervisor, chosen, workload, options, processes)
    _report(finding, options)
    return _code([finding], strict)


def axes_help(words: Sequence[str]) -> str:
    """Describe the axes of the experiment that *words* name first, if it is cached."""
    named = known_experiment(words[0]) if words else None
    if named is None:
        return "`gpuperf lab list` names the experiments and their axes."
    axes = ", ".join(
        f"--{axis.replace('_', '-')} {','.join(map(str, values))}"
        for axis, values in named.axes.items()
    )
    return f"Axes of {named.name}, with their usual values: {axes}."


def _name(words: Sequence[str], file: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of the experiment, `list` or `all`, and the other words."""
    if words and not words[0].startswith("-"):
        return words[0], tuple(words[1:])
    if file:
        return "", tuple(words)
    raise UsageError("no experiment was named", "gpuperf lab list, or gpuperf lab all")


def _seconds(text: str, plain_s: float) -> float:
    """Return the seconds of --budget; a number without a unit is in *plain_s*."""
    try:
        seconds = float(text) * plain_s
    except ValueError:
        try:
            seconds = parse_duration(text)
        except ValueError as error:
            raise UsageError(f"--budget: {error}", "for example --budget 10min") from None
    if not 0 < seconds <= 86400:
        raise UsageError(f"--budget {text} is not from 0 to a day", "for example --budget 10min")
    return seconds


def _catalogue(supervisor: Supervisor, file: str) -> Catalogue:
    if file:
        return load_experiments(file, supervisor.describe)
    return experiment_catalogue(supervisor.describe)


def _list(supervisor: Supervisor, options: opt.Options, file: str) -> None:
    if options.words:
        raise UsageError(f"`lab list` takes no {options.words[0]!r}", "gpuperf lab list")
    catalogue = _catalogue(supervisor, file)
    table = experiments_table(catalogue.experiments, catalogue.broken)
    put(render([table], options.format.value, stdout_screen()))


def _all(
    supervisor: Supervisor,
    options: opt.Options,
    file: str,
    budget: str | None,
    processes: int,
    strict: bool,
) -> int:
    if options.words:
        raise UsageError(
            f"`lab all` takes no {options.words[0]!r}", "name one experiment to set its axes"
        )
    check_writable(options.out)
    catalogue = _catalogue(supervisor, file)
    for source, reason in catalogue.broken.items():
        say(f"{source} does not load: {reason}")
    pace = Pace(_seconds(budget, MINUTE_S) if budget else None, processes)
    findings: list[Finding] = []
    ended: BaseException | None = None
    # Experiments of a gang are measured with --gpus, and no others then.
    chosen = [e for e in catalogue.experiments if ("gang" in e.needs) == (options.gpus is not None)]
    rest = list(in_order(by_cost(chosen)))
    while rest and ended is None:
        finding = _one(supervisor, rest, options, file, pace, processes)
        del rest[0]
        findings.append(finding)
        if finding.outcome is not None:
            _report(finding, options, printed=options.format in PRINTED)
            ended = finding.outcome.ended
    if options.format not in PRINTED:
        put(render_findings(findings, options.format.value, stdout_screen()))
    device = supervisor.open().device.name
    target = options.out / new_run_id("lab", ALL)
    pages = write_page(findings, device, target)
    say(f"{tally(findings)}; pages: {pages[0]} and {pages[1].name}")
    if ended is not None:
        raise ended
    return _code(findings, strict)


def _one(
    supervisor: Supervisor,
    rest: Sequence[ExperimentDescription],
    options: opt.Options,
    file: str,
    pace: Pace,
    processes: int,
) -> Finding:
    """Measure the first of *rest*; a reason that prevents it is in the finding."""
    experiment = rest[0]
    if missing := lacking(experiment, supervisor):
        return Finding(experiment, reason=missing)
    case_s = pace.case_s([each for each in rest if not lacking(each, supervisor)])
    if case_s is None:
        return Finding(experiment, reason="the budget was spent before it could be measured")
    say(f"{experiment.name}: {experiment.question}")
    try:
        _, workload = find_experiment(experiment.name, supervisor.describe, file)
        limited = replace(options, budget=case_s)
        finding = run_experiment(supervisor, experiment, workload, limited, processes)
        pace.measured(experiment, case_s)
        return finding
    except GpuperfError as error:
        say(f"{experiment.name}: {error}")
        return Finding(experiment, reason=str(error))


def _report(finding: Finding, options: opt.Options, printed: bool = True) -> None:
    outcome = finding.outcome
    if outcome is not None and outcome.run.records:
        if printed:
            print_run(outcome.run, options.format)
        write_charts(outcome.run, outcome.path)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= FEW else f"{len(names)} experiments"


def _code(findings: Sequence[Finding], strict: bool) -> int:
    """Return 0. Raises: what ended a run, CannotMeasure, or Incomplete where *strict*."""
    for finding in findings:
        outcome = finding.outcome
        if outcome is not None and outcome.ended is not None:
            raise outcome.ended
        if outcome is not None and not any(r.status == "ok" for r in outcome.run.records):
            raise CannotMeasure(
                f"nothing of {finding.experiment.name} was measured", "the table says why"
            )
    left_out = [finding for finding in findings if finding.outcome is None]
    if left_out:
        reasons: dict[str, list[str]] = {}
        for name, reason in ((f.experiment.name, f.reason) for f in left_out):
            reasons.setdefault(reason.removeprefix(f"{name} "), []).append(name)
        each = "; ".join(f"{reason} ({_few(names)})" for reason, names in reasons.items())
        raise CannotMeasure(
            f"{len(left_out)} of {len(findings)} experiments were not measured: {each}",
            "`gpuperf lab list` shows what each needs",
        )
    unsure = [f for f in findings if f.ruling and f.ruling.verdict == "INCONCLUSIVE"]
    if strict and unsure:
        names = ", ".join(finding.experiment.name for finding in unsure)
        raise Incomplete(f"the ruling is INCONCLUSIVE on {names}", "the table says why")
    return 0
