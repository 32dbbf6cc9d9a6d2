"""Collect the measurements of a session: name them, write them as they come, and compare them.

The run file grows by a line for each measurement, so that Ctrl-C and failing tests lose nothing. At
the end of the session it is replaced by a whole one: the plan and the contracts are known then.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Unpack

from gpuperf.errors import GpuperfError, UsageError
from gpuperf.files import check_writable, write_atomically
from gpuperf.library.costs import cost_of
from gpuperf.library.measure import MOST_NAME, Conditions, case_of, settings
from gpuperf.library.measurement import Measurement, NotMeasured, run_of
from gpuperf.library.run import Run, read_run
from gpuperf.model.codec import encode
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.noise import noise_of
from gpuperf.model.record import Header, Record
from gpuperf.pytest_plugin.budget import Budget, Decision, Mark, budget_of, decide
from gpuperf.pytest_plugin.judge import Comparison, compare
from gpuperf.pytest_plugin.passes import Plan, measure_again, read_plan
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import new_run_id

MOST_PASSES = 100
DIGEST = 6  # letters that tell names apart which were cut or cleaned


class Options(Protocol):
    """The options of pytest that the session reads."""

    gpuperf_save: str | None
    gpuperf_compare: str | None
    gpuperf_passes: int
    gpuperf_pass: str | None


class Invocation(Protocol):
    """The words by which pytest was called, and where."""

    @property
    def args(self) -> tuple[str | os.PathLike[str], ...]: ...
    @property
    def dir(self) -> Path: ...


@dataclass(frozen=True)
class Taken:
    """A measurement, the name that the table shows, its test, its budget and the decision."""

    label: str
    node: str
    measurement: Measurement
    budget: Budget

    @property
    def decision(self) -> Decision:
        """What the budget says of the measurement."""
        return decide(self.measurement, self.budget)


@dataclass
class InTest:
    """What the fixture gives to a test: a callable that measures, as `gpuperf.measure` does."""

    node: str
    budget: Budget
    keep: Callable[[Taken], None]
    taken: list[Taken] = field(default_factory=list)

    def __call__(
        self,
        fn: Callable[[], Any],
        *,
        cost: Cost | None = None,
        flops: float | Flops | Sequence[Flops] | None = None,
        bytes: float | Bytes | None = None,
        dtype: str = "",
        name: str = "",
        **conditions: Unpack[Conditions],
    ) -> Measurement:
        """Measure *fn*; see `gpuperf.measure`. *name* is added to that of the test.

        Raises: NotMeasured, UsageError, CannotMeasure; what *fn* raises.
        """
        counted = cost_of(cost, flops, bytes, dtype)
        chosen = settings(conditions, [fn])
        label = self._label(name)
        measurement = chosen.measure(fn, case_of(case_name(label)), counted)
        made = Taken(label, self.node, measurement, self.budget)
        self.taken.append(made)
        self.keep(made)
        record = measurement.record
        if record.samples is None or record.status != "ok":
            raise NotMeasured(record)
        return measurement

    def _label(self, name: str) -> str:
        """Return the test's node id, with *name*, and a number from the second of its kind on."""
        label = f"{self.node}::{name}" if name else self.node
        used = {one.label for one in self.taken}
        numbers = (f"{label}-{i}" for i in range(2, len(used) + 3))
        return label if label not in used else next(n for n in numbers if n not in used)

    def failures(self) -> list[str]:
        """Return a sentence for each measurement that is over its budget or has no time."""
        failed = (one for one in self.taken if one.decision.word in ("OVER", "ERROR"))
        return [f"{one.label}: {one.decision.sentence}" for one in failed]


def plain(node: str) -> str:
    """Return *node* without the way up from pytest's rootdir, which depends on the paths among its
    words where a project has no ini file."""
    return re.sub(r"^(\.\./)+", "", node)


def case_name(label: str) -> str:
    """Return *label* as a name of a case, with a digest if letters were lost."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("-")
    _, _, parameters = label.partition("[")
    if len(name) <= MOST_NAME and re.fullmatch(r"[\w.-]*\]?", parameters, re.ASCII):
        return name
    digest = hashlib.sha256(label.encode()).hexdigest()[:DIGEST]
    return f"{name[-(MOST_NAME - DIGEST - 1) :]}-{digest}".lstrip("-")


class Session:
    """The measurements of one session of pytest."""

    def __init__(self, options: Options, invocation: Invocation) -> None:
        """Read what *options* name. Raises: UsageError, RunFileError."""
        self.plan: Plan | None = read_plan(options.gpuperf_pass)
        save, base = options.gpuperf_save, options.gpuperf_compare
        self.path = Path(self.plan.run) if self.plan else _new_path(save)
        self.baseline = base if base and not self.plan else ""
        self.base = read_run(_existing_path(self.baseline)) if self.baseline else None
        self.passes = 1 if self.plan else options.gpuperf_passes
        if not 1 <= self.passes <= MOST_PASSES:
            raise UsageError(
                f"--gpuperf-passes {self.passes} is not from 1 to {MOST_PASSES}", "for example 6"
            )
        if self.passes > 1 and not (save or base):
            raise UsageError(
                "--gpuperf-passes needs a run file to write or to compare with",
                "add --gpuperf-save RUN",
            )
        self.invocation = invocation
        self.taken: dict[str, Taken] = {}
        self.more: list[Record] = []  # of further processes
        self.comparison: Comparison | None = None
        self.problem = ""
        self._header: Header | None = None
        self._writer: RunWriter | None = None

    def measures_again(self, node: str) -> bool:
        """Return whether this further process measures the test *node*."""
        return self.plan is not None and plain(node) in self.plan.nodes

    def begin(self, node: str, marks: Iterable[Mark]) -> InTest:
        """Return the fixture's value for the test *node*. Raises: UsageError for wrong *marks*."""
        budget = Budget() if self.plan else budget_of(marks)
        return InTest(plain(node), budget, self._keep)

    def _keep(self, made: Taken) -> None:
        """Add a measurement to the session, and to its run file. Raises: UsageError, Incomplete."""
        self.taken[made.measurement.record.case.id] = made
        if self._header is None:
            header = run_of([made.measurement]).header
            self._header = replace(header, run=new_run_id("pytest", "tests"), command=("pytest",))
            if self.path is not None:
                self._writer = RunWriter(self.path, fresh=True)
                self._writer.header(self._header)
        if self._writer is not None:
            record = replace(made.measurement.record, run=self._header.run)
            self._writer.record(replace(record, pass_index=self._index))

    @property
    def _index(self) -> int:
        return self.plan.index if self.plan else 0

    def run(self) -> Run | None:
        """Return the run of all measurements; None if there are none."""
        if self._header is None:
            return None
        made = run_of([one.measurement for one in self.taken.values()])
        contracts = sorted({record.contract for record in made.records}, key=repr)
        first, *others = contracts
        header = replace(
            self._header, plan=made.header.plan, contract=first, variants=tuple(others)
        )
        records = [replace(record, pass_index=self._index) for record in made.records] + self.more
        return Run(header, tuple(_with_noise(header.run, records)))

    def finish(self, again: bool) -> None:
        """Measure in further processes if *again*, complete the run file, and compare.

        `problem` then says why the session fails; it is empty if nothing speaks against it.
        """
        problems = []
        try:
            self._again(again)
        except GpuperfError as error:
            problems.append(_sentence(error))
        run = self.run()
        try:
            self._complete(run)
        except GpuperfError as error:
            problems.append(_sentence(error))
        if self.base is not None:
            self.comparison = compare(self.base, run, self.baseline)
            problems.append(self.comparison.problem)
        self.problem = "\n".join(filter(None, problems))

    def _again(self, again: bool) -> None:
        if again and self.passes > 1 and self.taken:
            nodes = tuple(dict.fromkeys(one.node for one in self.taken.values()))
            words, folder = [os.fspath(word) for word in self.invocation.args], self.invocation.dir
            self.more += measure_again(words, folder, nodes, self.passes)

    def _complete(self, run: Run | None) -> None:
        """Replace the lines written so far by the whole run. Raises: GpuperfError."""
        writer, self._writer = self._writer, None
        if writer is None or run is None:
            return
        with writer:
            pass  # it refuses a file that was moved or cut meanwhile
        lines = [b"", *map(encode, (run.header, *run.records)), b""]
        try:
            write_atomically(writer.path, b"\n".join(lines))
        except OSError as error:
            raise UsageError(
                f"{writer.path} cannot be completed: {error.strerror}", "free some space"
            ) from None


def _with_noise(run: str, records: Sequence[Record]) -> Iterator[Record]:
    """Yield *records* as those of *run*, with the scatter of their case between its processes."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.case.id, []).append(record)
    noises = {case: noise_of(group) for case, group in groups.items()}
    for record in records:
        yield replace(record, run=run, noise=noises[record.case.id])


def _sentence(error: GpuperfError) -> str:
    return f"{error}\nhint: {error.hint}" if error.hint else str(error)


def _new_path(name: str | None) -> Path | None:
    if not name:
        return None
    path = Path(name if name.endswith(".jsonl") else f"{name}.jsonl")
    if os.path.lexists(path):
        raise UsageError(f"{path} exists", "remove it, or choose another --gpuperf-save")
    check_writable(path.parent, "--gpuperf-save")
    return path


def _existing_path(name: str) -> Path:
    path = Path(name)
    suffixed = path.with_name(f"{path.name}.jsonl")
    return suffixed if not path.exists() and suffixed.exists() else path
