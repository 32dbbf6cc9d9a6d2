"""Judge a stored verdict again from the times in it (`gpuperf gate check`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuperf.errors import CannotMeasure
from gpuperf.gate.command_ab import FormatOfGate
from gpuperf.gate.formats import GateFormat
from gpuperf.gate.output import print_report
from gpuperf.gate.verdict import exit_code, read_report, recheck
from gpuperf.verb import options as opt


@opt.takes("verbose")
def gate_check(
    options: opt.Options,
    verdict: Annotated[Path, typer.Argument(metavar="VERDICT", help="A gate's verdict.json.")],
    commit: Annotated[
        str | None,
        typer.Option(help="Commit that the head of the gate must be.", show_default=False),
    ] = None,
    format: FormatOfGate = GateFormat.TABLE,
) -> int:
    """Judge the times in a verdict again, and exit with the code of the gate.

    Fails if the file is no verdict, or if its verdict does not follow from its times.
    """
    report = recheck(read_report(verdict))
    if commit is not None and (not commit or report.head.commit != commit):
        judged = report.head.commit[:40] or "no commit"
        raise CannotMeasure(
            f"the verdict is on {judged}, and not on {commit!r}", "gate this commit"
        )
    print_report(report, format, options.verbose)
    return exit_code(report)
