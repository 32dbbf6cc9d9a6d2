"""`gpuperf roofline`: measure a workload over its sizes, and place it under the roofline."""

from __future__ import annotations

from dataclasses import replace

from gpuperf.errors import UsageError
from gpuperf.run.store import read_run
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import Request, measure_new, measure_rest, report
from gpuperf.verb.parse import parse_view

# Options that --resume takes from the run; others (device, deadline, format) may be given with it.
SETTLED = (
    *opt.CASES,
    "gpus",
    *opt.TIMING,
    "peaks",
    "out",
    "seed",
    *opt.CONDITIONS,
    "energy",
    "counters",
)


@opt.takes(
    *opt.CASES,
    "device",
    "gpus",
    "threads",
    *opt.TIMING,
    *opt.CONDITIONS,
    "energy",
    "counters",
    "intensity",
    *opt.FILES,
    *opt.LOOK,
    "resume",
    "seed",
)
def roofline(options: opt.Options) -> int:
    """Measure OP over sizes and place each under the roofline.

    Name OP first, or with --op. Each axis of the workload is an option too: --m 4096
    --k 512,1024.
    """
    view = parse_view(options.intensity)
    request = Request("roofline", options, options.conditions, view)
    if options.resume is not None:
        _refuse_beside_resume(options)
        world = read_run(options.resume).header.world
        options = replace(options, gpus=world if world > 1 else None)
    with options.supervisor() as supervisor:
        if options.resume is None:
            outcome = measure_new(supervisor, request)
        else:
            outcome = measure_rest(supervisor, options.resume)
        supervisor.dismiss()
        top = outcome.run.header
        # A run of another verb that is resumed is printed as that verb does.
        resumed = options.resume is not None and (top.study or top.baseline)
        return report(outcome, options, None if resumed else view)


def _refuse_beside_resume(options: opt.Options) -> None:
    """Refuse options of the plan and the contract, which the run has. Raises: UsageError."""
    given = [f"--{name}" for name in SETTLED if name in options.typed]
    given += options.words
    if given:
        raise UsageError(
            f"--resume takes its plan from the run, so {given[0]} cannot be given with it",
            "leave it out, or begin a new run",
        )
