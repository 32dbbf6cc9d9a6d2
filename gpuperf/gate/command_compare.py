"""Judge a stored run against another one, or against a baseline (`gpuperf gate compare`)."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure
from gpuperf.files import is_regular
from gpuperf.gate.baseline import Shelf
from gpuperf.gate.command_ab import AbsFloor, FormatOfGate, MinEffect
from gpuperf.gate.compare import compare_runs
from gpuperf.gate.formats import GateFormat
from gpuperf.gate.output import print_report, write_outputs
from gpuperf.gate.project import load_project
from gpuperf.gate.rule import Rule
from gpuperf.gate.stored import SESSION
from gpuperf.gate.verdict import exit_code, write_report
from gpuperf.run.store import NAMES, read_summary
from gpuperf.verb import options as opt
from gpuperf.verb.parse import seconds

TARGET = 0.1


@opt.takes("verbose")
def gate_compare(
    options: opt.Options,
    baseline: Annotated[
        str, typer.Argument(metavar="BASELINE", help="A run file, or the name of a baseline.")
    ],
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="A run file.")],
    min_effect: MinEffect = SESSION,
    abs_floor: AbsFloor = None,
    target_mde: Annotated[
        float | None,
        typer.Option(
            min=1e-4,
            max=1.0,
            help="Slowdown that must be detectable in every case (0.1: 10 %).",
            show_default=f"{TARGET:g}",
        ),
    ] = None,
    folder: opt.Baselines = opt.BASELINES,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the verdict.", show_default=False)
    ] = None,
    format: FormatOfGate = GateFormat.TABLE,
) -> int:
    """Judge a stored run against another: `gpuperf run --suite ci --passes 10` makes one.

    Refused unless contract, GPU, power limit and workload versions agree; advice only across hosts.
    """
    head = read_summary(candidate)
    if is_regular(baseline):
        base = read_summary(baseline)
    elif baseline.endswith(NAMES):
        raise CannotMeasure(f"there is no baseline {baseline[:200]}", "`gpuperf run` makes one")
    else:
        _, base = Shelf(folder).find(baseline, head.header)
    gc.freeze()  # keep the garbage collector from searching two large runs again and again
    project = load_project(Path())
    rule = Rule(margin=min_effect, floor_s=seconds("abs-floor", abs_floor))
    target = target_mde or max(project.target or 0.0, TARGET)  # a project's target is for pairs
    report = compare_runs(base, head, rule, target, project, (baseline, candidate.name))
    if out is not None:
        write_report(report, out / "verdict.json")
        write_outputs(report, out)
    print_report(report, format, options.verbose)
    return exit_code(report)
