"""`gpuperf gate compare`: a stored run against another one, or against a baseline."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure
from gpuperf.files import is_regular
from gpuperf.gate.baseline import Shelf
from gpuperf.gate.compare import compare_runs
from gpuperf.gate.printing import print_report, write_outputs
from gpuperf.gate.project import load_project
from gpuperf.gate.rule import Rule
from gpuperf.gate.stored import SESSION
from gpuperf.gate.table import GateFormat
from gpuperf.gate.verdict import exit_code, write_report
from gpuperf.run.store import NAMES, read_summary
from gpuperf.verb.options import BASELINES, Baselines
from gpuperf.verb.parse import seconds

TARGET = 0.1


def gate_compare(
    baseline: Annotated[str, typer.Argument(metavar="BASELINE", help="A run file, or a name.")],
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="A run file.")],
    min_effect: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Slowdown that is not worth a word.")
    ] = SESSION,
    abs_floor: Annotated[
        str | None, typer.Option(help="The same as a time, for example 200ns.", show_default=False)
    ] = None,
    target_mde: Annotated[
        float | None,
        typer.Option(min=1e-4, max=1.0, help="Slowdown that must be detectable in every case."),
    ] = None,
    folder: Baselines = BASELINES,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the verdict.", show_default=False)
    ] = None,
    format: Annotated[GateFormat, typer.Option(help="How to print.")] = GateFormat.TABLE,
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
    gc.freeze()  # two large runs: nothing in them is to be looked for again and again
    project = load_project(Path())
    rule = Rule(margin=min_effect, floor_s=seconds("abs-floor", abs_floor))
    target = target_mde or max(project.target or 0.0, TARGET)  # a project's own is of pairs
    report = compare_runs(base, head, rule, target, project, (baseline, candidate.name))
    if out is not None:
        write_report(report, out / "verdict.json")
        write_outputs(report, out)
    print_report(report, format)
    return exit_code(report)
