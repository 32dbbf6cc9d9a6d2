"""Report progress on stderr: a bar on a terminal, and otherwise a line for each case."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from gpuperf.model.contract import Contract
from gpuperf.model.record import Record
from gpuperf.model.text import clean, shorten
from gpuperf.units import format_interval, format_time

LONGEST_WORD = 1000  # characters of a word in a message; the path of a run file is shorter
VARIED = ("timer", "cache", "regime", "data")  # fields of a contract that options can vary


class _Stderr(Console):
    """A console on stderr whose broken pipe does not end the measurement."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def say(message: str) -> None:
    """Write one line to stderr."""
    with contextlib.suppress(OSError):  # the terminal may be gone
        words = (shorten(word, LONGEST_WORD) for word in clean(message).split(" "))
        _Stderr(stderr=True, highlight=False).print(Text(" ".join(words)), soft_wrap=True)


class Reporter:
    """Progress of a sweep of *total* cases.

    With several *contracts*, each line names what differs between them.
    """

    def __init__(self, total: int, contracts: Sequence[Contract] = ()) -> None:
        self._varied = [f for f in VARIED if len({getattr(c, f) for c in contracts}) > 1]
        self._console = _Stderr(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._live,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=total)
        self._case = ""
        self._skipped: list[str] = []  # cases skipped alike, one after the other
        self._alike = ("", "")  # their process and outcome

    def __enter__(self) -> Reporter:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._flush()
        self._progress.stop()

    def begin(self, case: str) -> None:
        """Show that *case* begins."""
        case = self._case = clean(case)
        self._progress.update(self._task, description=case)

    def show_phase(self, phase: str, samples: int) -> None:
        """Show the phase of the present case and its number of samples so far."""
        if self._live:
            detail = f"{phase} {samples}" if samples else phase
            self._progress.update(self._task, description=f"{self._case} · {detail}")

    def done(self, record: Record, process: str = "") -> None:
        """Count a finished case; without a terminal, write its line, which names its *process*.

        Cases that are skipped for one reason, one after the other, have one line together.
        """
        self._progress.advance(self._task)
        if self._live:
            return
        contract = "".join(f" · {getattr(record.contract, name)}" for name in self._varied)
        name, outcome = f"{process}{record.case.id}{contract}", _outcome(record)
        if (process, outcome) != self._alike or record.status != "skipped":
            self._flush()
        if record.status == "skipped":
            self._alike = (process, outcome)
            self._skipped.append(name)
        else:
            self._line(name, outcome)

    def _flush(self) -> None:
        """Write the line of the cases that were skipped."""
        if self._skipped:
            more = len(self._skipped) - 1
            others = f" and {more} case{'s' * (more > 1)} more" if more else ""
            self._line(self._skipped[0] + others, self._alike[1])
        self._skipped = []

    def _line(self, name: str, outcome: str) -> None:
        self._console.print(Text(clean(f"{name}  {outcome}")), soft_wrap=True)


def _outcome(record: Record) -> str:
    samples = record.samples
    if samples is None:
        return f"{record.status}: {record.reason}"
    low, high = samples.interval_s
    interval = format_interval(samples.median_s, max(low, 0.0), high)
    return f"{format_time(samples.median_s)} {interval}"
