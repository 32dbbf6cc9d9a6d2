"""`gpuperf compare`: measure every implementation of a workload against a baseline."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure
from gpuperf.model.contract import LEAST_PRECISE
from gpuperf.model.record import Run
from gpuperf.run.plan import Conditions
from gpuperf.verb import options as opt
from gpuperf.verb import parse
from gpuperf.verb.measuring import Request, measure_new, report


@opt.takes(
    *opt.CASES,
    "device",
    "gpus",
    "threads",
    "timer",
    "precision",
    *opt.CONDITIONS,
    "energy",
    "counters",
    *opt.FILES,
    *opt.LOOK,
    "seed",
)
def compare(
    options: opt.Options,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Implementation that speed-ups refer to (default: the first one).",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            max=200,
            help="Number of fresh processes that each measure all cases; the interval of a "
            "speed-up is over them.",
        ),
    ] = 3,
    budget: Annotated[
        float | None,
        typer.Option(
            parser=parse.seconds_between("budget", 0.0, 3600.0),
            metavar="DURATION",
            show_default="2, or 1 in each of several processes",
            help="Sample a case for at most this long in each process, in seconds, or as 500ms or "
            "2min.",
        ),
    ] = None,
) -> int:
    """Compare implementations of OP: time, bytes, memory, error.

    Each implementation is measured at each point; --baseline names the one that speed-ups refer
    to. Name OP first, or with --op. Each axis of the workload is an option too: --seq 512,4096
    --causal both --mode fwd,bwd.
    """
    budget_s = budget if budget is not None else 2.0 if processes == 1 else 1.0
    conditions = _each(replace(options, budget=budget_s).conditions, processes)
    request = Request("compare", options, conditions, baseline=baseline, processes=processes)
    with options.supervisor(processes) as supervisor:
        outcome = measure_new(supervisor, request)
    code = report(outcome, options)
    refuse_uncompared(outcome.run)
    return code


def refuse_uncompared(run: Run) -> None:
    """Raise CannotMeasure if *run* has several implementations that the user chose, and no case has
    times of two."""
    if not any(word.partition("=")[0] == "--impl" for word in run.header.command):
        return
    timed: dict[tuple[object, ...], set[str]] = {}
    for record in run.records:
        case = (record.case.op, *sorted(record.case.point.items()), record.contract)
        names = timed.setdefault(case, set())
        if record.status == "ok" and record.samples:
            names.add(record.case.implementation)
    planned = {case.implementation for case in run.header.plan}
    if len(planned) > 1 and all(len(names) < 2 for names in timed.values()):
        own = " or ".join(sorted(set().union(*timed.values())))
        raise CannotMeasure(
            f"nothing was compared: no case has times of two implementations, only {own}",
            "the table says why the others have none",
        )


def _each(whole: Conditions, processes: int) -> Conditions:
    """Return the conditions of each of *processes*, which together are as precise as *whole*: the
    center of n medians scatters by √n less than one."""
    each = whole.precision * math.sqrt(processes)
    return replace(whole, precision=min(float(f"{each:.2g}"), LEAST_PRECISE))
