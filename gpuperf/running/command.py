"""Run `gpuperf run`: measure a suite of cases into one run file."""

from __future__ import annotations

from typing import Annotated

import typer

from gpuperf.run.suite import load_suite
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import Request, measure_again, measure_suite, report


@opt.takes("device", "gpus", "threads", *opt.FILES, *opt.LOOK, "seed")
def run(
    options: opt.Options,
    suite: opt.Suite,
    passes: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            help="Number of processes that measure the suite: 3 or more show the noise of each "
            "case between processes, and `gpuperf gate compare` needs 6.",
        ),
    ] = 1,
) -> int:
    """Measure the cases of a suite.

    The suite also sets the conditions of the measurement: timer, cache, regime and data. A suite of
    collectives, such as `collectives`, needs --gpus.
    """
    loaded = load_suite(suite)
    request = Request("run", options, loaded.conditions)
    with options.supervisor() as supervisor:
        outcome = measure_suite(supervisor, loaded, request)
        if passes > 1 and outcome.ended is None:
            outcome = measure_again(supervisor, outcome, passes - 1)
    return report(outcome, options)
