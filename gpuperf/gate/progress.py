"""Show the progress of a gate: a bar for each stage on a terminal, else a line for each stage."""

from __future__ import annotations

import sys

from gpuperf.gate.sides import Label
from gpuperf.model.record import Record
from gpuperf.verb.progress import Reporter, say


class GateProgress:
    """The progress of a gate on stderr, which the gate updates."""

    def __init__(self) -> None:
        self._reporter: Reporter | None = None
        self._live = sys.stderr.isatty()

    def __enter__(self) -> GateProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reporter is not None:
            self._reporter.__exit__(None, None, None)
            self._reporter = None

    def say(self, text: str) -> None:
        say(text)

    def stage(self, name: str, records: int) -> None:
        """Begin the stage *name*, which measures *records* records."""
        self.__exit__()
        if self._live:
            self._reporter = Reporter(records).__enter__()
            self._stage = name
        else:
            say(name)

    def begin(self, case: str) -> None:
        """Show the next case."""
        if self._reporter is not None:
            self._reporter.begin(f"{self._stage}: {case}")

    def hear(self, phase: str, samples: int) -> None:
        """Show the *phase* of the running case, and its *samples* so far."""
        if self._reporter is not None:
            self._reporter.show_phase(phase, samples)

    def done(self, label: Label, record: Record) -> None:
        """Advance the bar by one record."""
        if self._reporter is not None:
            self._reporter.done(record)
