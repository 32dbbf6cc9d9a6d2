"""Print a gate's report, and write it as Markdown, JUnit XML and a chart beside the verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.files import write_atomically
from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.verdict import GateReport
from gpuperf.show.screen import put, stdout_screen
from gpuperf.verb.progress import say


def print_report(report: GateReport, format: GateFormat, verbose: bool = False) -> None:
    """Print *report* on stdout; a closed pipe is ignored, so that the exit code is the gate's."""
    try:
        put(render_gate(report, format, verbose, stdout_screen()))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_outputs(report: GateReport, folder: Path) -> None:
    """Write report.md, junit.xml and a chart into *folder*; report a failed file and continue."""
    for kind, name in ((GateFormat.MD, "report.md"), (GateFormat.JUNIT, "junit.xml")):
        try:
            write_atomically(folder / name, render_gate(report, kind))
        except (OSError, ValueError) as error:
            say(f"no {name} was written: {getattr(error, 'strerror', None) or error}")
    try:
        from gpuperf.gate.chart import draw_pairs

        draw_pairs(report, [folder / "pairs.png", folder / "pairs.svg"])
    except (OSError, ValueError, UsageError) as error:
        say(f"no chart was written: {error}")
    say(f"verdict: {folder / 'verdict.json'}")
