"""What the gate's verbs do around a gate: progress, and what is written and printed of it."""

from __future__ import annotations

import sys
from pathlib import Path

from gpuperf.cli.progress import Reporter, say
from gpuperf.gate.sides import Label
from gpuperf.gate.verdict import GateReport
from gpuperf.model.record import Record
from gpuperf.report.gate import GateFormat, render_gate

__all__ = ["Progress", "print_report", "write_outputs"]


class Progress:
    """A gate's progress: a bar a stage on a terminal, a line a stage without one."""

    def __init__(self) -> None:
        self._reporter: Reporter | None = None
        self._live = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._reporter is not None:
            self._reporter.__exit__(None, None, None)
            self._reporter = None

    def say(self, text: str) -> None:
        """A sentence."""
        say(text)

    def stage(self, name: str, records: int) -> None:
        """The next *records* records are of this stage."""
        self._end()
        if self._live:
            self._reporter = Reporter(records).__enter__()
            self._stage = name
        else:
            say(name)

    def begin(self, case: str) -> None:
        """The next case."""
        if self._reporter is not None:
            self._reporter.begin(f"{self._stage}: {case}")

    def hear(self, phase: str, samples: int) -> None:
        """A sign of life of the case."""
        if self._reporter is not None:
            self._reporter.hear(phase, samples)

    def done(self, label: Label, record: Record) -> None:
        """A case was measured."""
        if self._reporter is not None:
            self._reporter.done(record)


def print_report(report: GateReport, format: GateFormat) -> None:
    """To stdout."""
    sys.stdout.write(render_gate(report, format))


def write_outputs(report: GateReport, folder: Path) -> None:
    """Beside the verdict: markdown and JUnit."""
    for kind, name in ((GateFormat.MD, "report.md"), (GateFormat.JUNIT, "junit.xml")):
        (folder / name).write_text(render_gate(report, kind), encoding="utf-8")
    say(f"verdict: {folder / 'verdict.json'}")
