"""Measure a schedule of cases and report its progress; keep the error that ends it early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuperf.errors import GpuperfError
from gpuperf.model.contract import Contract
from gpuperf.model.record import Header, Noise, Record
from gpuperf.model.workload import Case
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import PlannedCase, measure_cases, process_text
from gpuperf.run.supervisor import FAILED_CASE, Supervisor
from gpuperf.verb.progress import Reporter, say


def _say_renewals(reasons: Sequence[str]) -> None:
    """Report why workers were replaced, which takes seconds each, beside cases that failed."""
    for reason, count in Counter(r for r in reasons if not r.startswith(FAILED_CASE)).items():
        say(f"{count} worker{'s were' if count > 1 else ' was'} replaced after a case: {reason}")


@dataclass
class Session:
    """A run in progress: its `records` so far, and the error that `ended` it early, if any.

    Records go to the `writer`; without one they are in memory alone.
    """

    supervisor: Supervisor
    writer: RunWriter | None
    header: Header
    records: list[Record] = field(default_factory=list)
    ended: BaseException | None = None

    @contextmanager
    def reporting(self, total: int, contracts: Sequence[Contract] = ()) -> Iterator[Reporter]:
        """Show the progress of *total* cases; Ctrl-C or a GpuperfError inside ends the session.

        With several *contracts*, each line names what differs between them.
        """
        with Reporter(total, contracts) as reporter:
            self.supervisor.listen = reporter.show_phase
            try:
                yield reporter
            except (GpuperfError, KeyboardInterrupt) as error:
                self.ended = error

    def measure(
        self,
        reporter: Reporter,
        schedule: Iterable[PlannedCase],
        noise: Callable[[Case, Contract], Noise | None] = lambda case, contract: None,
        every: bool = False,
        fresh: bool = False,
    ) -> None:
        """Measure each case of *schedule*; *noise*, *every*, *fresh* are as in `measure_cases`."""

        def keep(record: Record) -> None:
            self.records.append(record)
            reporter.done(record, process_text(self.header, record.pass_index))

        known = len(self.supervisor.renewals)
        try:
            measure_cases(
                self.supervisor,
                self.writer,
                self.header,
                schedule,
                keep,
                reporter.begin,
                noise,
                every,
                fresh,
            )
        finally:
            _say_renewals(self.supervisor.renewals[known:])

    def add(self, reporter: Reporter, record: Record) -> None:
        """Store and report a *record* that was not measured by `measure`."""
        self.records.append(record)
        reporter.done(record)
        if self.writer is not None:
            self.writer.record(record)
