"""`gpuperf gate check`: the exit code of a verdict, judged again from its own evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure
from gpuperf.gate.printing import print_report
from gpuperf.gate.table import GateFormat
from gpuperf.gate.verdict import exit_code, read_report, recheck


def gate_check(
    verdict: Annotated[Path, typer.Argument(metavar="VERDICT", help="A gate's verdict.json.")],
    commit: Annotated[
        str | None,
        typer.Option(help="The head's commit, which the verdict must be of.", show_default=False),
    ] = None,
    format: Annotated[GateFormat, typer.Option(help="How to print.")] = GateFormat.TABLE,
) -> int:
    """Judge a verdict's own evidence again, and exit as the gate did; no verdict is no pass."""
    report = recheck(read_report(verdict))
    if commit is not None and (not commit or report.head.commit != commit):
        told = f"the verdict is of {report.head.commit[:40] or 'no commit'}, and not of {commit!r}"
        raise CannotMeasure(told, "gate this commit")
    print_report(report, format)
    return exit_code(report)
