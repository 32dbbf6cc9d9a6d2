"""Judge submissions on one case of a task: start the workers, keep the clock, collect evidence.

The clerk imports neither the submission nor the reference. It starts a worker that holds the
answers, a seat of the reference, and a seat of each submission, which runs while the others rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from gpuperf.errors import CannotMeasure
from gpuperf.judge import tree
from gpuperf.judge.device_trial import result_bytes
from gpuperf.judge.ending import failed, fault_of_task, placed, sha256_of
from gpuperf.judge.evidence import CaseEvidence, Counted, Hardware, Restrictions
from gpuperf.judge.plan import LARGEST_SPREAD, most_audits, slot_count
from gpuperf.judge.protocol import Build, Import, Imported, Load, Loaded, Share, Shared
from gpuperf.judge.roofs import roofs_of
from gpuperf.judge.seat import RESULTS, SLOTS, START_S, WEIGHTS, Ended, Seat, ask
from gpuperf.judge.settings import Settings
from gpuperf.judge.shared_files import SharedFiles
from gpuperf.judge.starting import Seated, Starter, in_memory_folder, temporary
from gpuperf.judge.task import Side, Submission, TaskCase, TaskSource
from gpuperf.judge.trial import Bench, Trial
from gpuperf.run.connection import LocalConnection
from gpuperf.run.forking import ForkServer

RESULTS_OF_REFERENCES = "results-of-references"
PAGE = 4096


@dataclass
class Clerk:
    """Judges submissions on one case; a context manager, which keeps the reference's workers.

    With *server*, its workers are forks.
    """

    task: TaskSource
    case: TaskCase
    settings: Settings
    server: ForkServer | None = None
    _held: ExitStack = field(default_factory=ExitStack)
    _files: SharedFiles = field(default_factory=SharedFiles)
    _starter: Starter | None = None
    _answers: LocalConnection | None = None
    _loaded: Loaded | None = None
    _references: dict[tuple[Side, int], Seated] = field(default_factory=dict)
    _seed: int = 0
    _sha: str = ""
    _results: int = -1
    _orphaned: bool = False
    _uncompiled: str = ""
    _staged: str = ""
    _counted: dict[Side, Counted] = field(default_factory=dict)

    def __enter__(self) -> Clerk:
        self._held.enter_context(tree.adopting())
        self._held.callback(self._files.close)
        memory = in_memory_folder(self._held, self.settings.memory)
        disk = temporary(self._held, self.settings.disk)
        self._files.add(memory)
        self._starter = Starter(self.settings, self.server, self._files, disk, memory)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for seat, _ in self._references.values():
            seat.close()
        self._starting.drop()
        if self._answers is not None:
            self._answers.kill()
        self._held.close()

    @property
    def _starting(self) -> Starter:
        assert self._starter is not None
        return self._starter

    def load(self) -> Loaded:
        """Load the task, once. Raises: CannotMeasure, WorkloadError."""
        if self._loaded is None:
            self._answers = self._answers or self._starting.answers()
            self._sha = sha256_of(self.task.reference)
            self._seed = int.from_bytes(os.urandom(4))
            try:
                ask(self._answers, None, START_S)
                request = Load(self.task, self.case, self._seed, self.settings.device)
                self._loaded = ask(self._answers, request, START_S)
            except Ended as ended:
                self._answers.kill()
                self._answers = None
                raise fault_of_task(ended) from None
            opened = self._loaded.opened if self._loaded else None
            if opened is not None and opened.device.kind == "rocm":
                raise CannotMeasure("the judge knows NVIDIA GPUs and CPUs", "--device cpu")
        return self._loaded

    def judge(self, submission: Submission) -> CaseEvidence:
        """Collect the evidence about *submission*. Raises: CannotMeasure."""
        try:
            return self._judge(submission)
        finally:
            self._starting.drop()

    def _begin(self) -> None:
        """Start all workers side by side, and wait for them if the task's load measures."""
        if self._answers is None:
            self._answers = self._starting.answers()
        for process in range(self.settings.processes):
            for side in self._others():
                if (side, process) not in self._references:
                    self._starting.begin(side, f"{side}-{process}")
            self._starting.begin("submission", f"submission-{process}")
        if self.settings.may_use_gpu:
            self._starting.await_begun()

    def _judge(self, submission: Submission) -> CaseEvidence:
        if self._loaded is None or not self._loaded.unfair:
            self._begin()
        loaded = self.load()
        for process in range(0 if loaded.unfair else self.settings.processes):
            for side in self._others():  # before a submission could change the file
                self._reference(process, side)
        if not loaded.unfair:
            self._starting.await_begun()
        evidence = CaseEvidence(
            self.case.name,
            unfair=loaded.unfair,
            cost=loaded.cost,
            cost_is_derived=loaded.cost_is_derived,
            kinds=loaded.kinds,
            notes=loaded.notes,
            restrictions=Restrictions(self.settings.isolation),
            roofs=roofs_of(loaded.opened),
            started="forked" if self.server and not self.server.refused() else "spawned",
            hardware=self._hardware(loaded),
            forbidden=self.settings.forbid,
        )
        self._counted.pop("submission", None)
        for process in range(0 if loaded.unfair else self.settings.processes):
            evidence = self._add_process(evidence, submission, process)
            if (
                evidence.failure
                or any(a.failed for a in evidence.audits)
                or evidence.replaced
                or evidence.edited
            ):
                break
        if self._uncompiled:
            note = f"torch.compile of the reference is not timed: {self._uncompiled}"
            evidence = replace(evidence, notes=(*evidence.notes, note))
        if sha256_of(self.task.reference) != self._sha:
            evidence = replace(evidence, edited="the reference's file changed while it was judged")
        return evidence

    def is_spoiled(self) -> bool:
        """Return whether a submission changed the reference's file or a shared one, ended a worker,
        or left a process behind."""
        if self._loaded is None:
            return False
        dead = any(worker.death() is not None for worker in self._workers())
        harmed = dead or self._orphaned or bool(self._files.breach())
        return harmed or sha256_of(self.task.reference) != self._sha

    def _workers(self) -> list[LocalConnection]:
        """Return the workers that serve all submissions."""
        seats = [seat.connection for seat, _ in self._references.values()]
        return [*seats, self._answers] if self._answers else seats

    def _add_process(
        self, evidence: CaseEvidence, submission: Submission, process: int
    ) -> CaseEvidence:
        """Return *evidence* with that of one more process of *submission*."""
        with self._seat(process) as (seat, folder):
            try:
                evidence = self._try(evidence, submission, process, seat, folder)
            except CannotMeasure:
                if not self._files.breach():
                    raise
                evidence = replace(evidence, failure="crashed", reason=self._files.breach())
            return replace(evidence, edited=self._files.breach())

    def _try(
        self, evidence: CaseEvidence, submission: Submission, process: int, seat: Seat, folder: Path
    ) -> CaseEvidence:
        """Return *evidence* with that of the process of *seat*. Raises: CannotMeasure."""
        loaded = self.load()
        assert self._answers is not None
        others = [self._reference(process, side) for side in self._others()]
        try:
            evidence = replace(evidence, restrictions=self._import(seat, submission, folder))
        except Ended as ended:
            return failed(evidence, ended, "compile-error")
        secret = int.from_bytes(os.urandom(8))  # drawn after the submission was imported
        try:
            shared = self._share_all(folder, others)
            self._build(seat, folder, shared, 0)
        except Ended as ended:
            return failed(evidence, ended, "crashed")
        references = tuple(reference for reference, _ in others)
        bench = Bench(
            self._answers,
            seat,
            references,
            self._results,
            loaded,
            self._slot_count(),
            placed(evidence.hardware, self._staged),
            self._counted,
        )
        trial = Trial(bench, process, secret, self.settings.deadline_s)
        evidence = trial.run(evidence)
        if trial.uncompiled:
            self._dismiss_compiled(trial.uncompiled)
        if trial.uncounted:
            self._dismiss("reference")
        return evidence

    @property
    def _device(self) -> str:
        """The device that the answers' worker has opened."""
        opened = self.load().opened
        cpu = opened is None or opened.device.kind == "cpu"
        return "cpu" if cpu or opened is None else f"cuda:{opened.device.index}"

    @property
    def _gpu(self) -> bool:
        return self._device != "cpu"

    def _hardware(self, loaded: Loaded) -> Hardware | None:
        if not self._gpu:
            return None
        facts = loaded.opened.device if loaded.opened else None
        return Hardware(
            facts.name if facts else self.settings.device,
            l2_bytes=float(facts.l2_bytes or 0) if facts else 0.0,
            needed_bytes=loaded.needed,
            result_bytes=float(sum(spec.bytes for spec in loaded.results)),
            probe_s=loaded.probe_s,
        )

    def _slot_count(self) -> int:
        loaded = self.load()
        extra = result_bytes(loaded.results) if self._gpu else 0
        return slot_count(loaded.inputs.size + extra, self._gpu)

    def _results_bytes(self) -> int:
        """Return the bytes of all audited results of a window."""
        size, audits = result_bytes(self.load().results), most_audits(self._slot_count())
        if self._gpu:
            return audits * size + PAGE
        return (audits + 1) * LARGEST_SPREAD * (size + PAGE)

    def _share_all(self, folder: Path, others: Sequence[tuple[Seat, Path]]) -> Shared:
        """Share slots with all seats, and build the references; on a GPU by its own memory, or by
        files where the driver shares none. Raises: CannotMeasure; Ended after a breach."""
        assert self._answers is not None
        folders = (folder, *(place for _, place in others))
        for on_device in (True, False) if self._gpu and not self._staged else (False,):
            request = self._share(folders, on_device)
            try:
                shared = ask(self._answers, request, self.settings.deadline_s)
                if shared.missing:
                    self._staged = shared.missing
                    continue
                for number, (reference, place) in enumerate(others, 1):
                    self._build(reference, place, shared, number)
                # The references have it open; the submission could find their answers by its name.
                self._files.remove(self._starting.memory / RESULTS_OF_REFERENCES)
            except Ended as ended:
                if not on_device or ended.failure == "oom":
                    raise fault_of_task(ended) from None
                self._staged = str(ended)
            else:
                made: Shared = shared
                return made
        raise CannotMeasure(f"no memory can be shared: {self._staged}")

    def _dismiss_compiled(self, reason: str) -> None:
        """End the seats of torch.compile, which failed for this *reason*."""
        self._uncompiled = reason
        self._dismiss("compiled")

    def _dismiss(self, side: Side) -> None:
        """End the seats of a side of the reference; they start anew when they are needed."""
        for key in [key for key in self._references if key[0] == side]:
            seat, folder = self._references.pop(key)
            seat.close()
            self._starting.remove(folder)

    def _others(self) -> tuple[Side, ...]:
        compiled = self.settings.compiled and not self._uncompiled
        return ("reference", "compiled") if compiled else ("reference",)

    def _share(self, folders: tuple[Path, ...], on_device: bool) -> Share:
        """Make the files that the seats in *folders* and the answers' worker share."""
        loaded, memory = self.load(), self._starting.memory
        count = self._slot_count()
        size = self._results_bytes()
        for folder in folders:
            self._files.make(folder / WEIGHTS, loaded.state.size)
            if not on_device:
                self._files.make(folder / SLOTS, count * loaded.inputs.size)
        # On a GPU the submission opens it, after its sandbox has closed all but its own folder.
        results = (folders[0] if self._gpu else memory) / RESULTS
        theirs = memory / RESULTS_OF_REFERENCES
        if not on_device:
            self._results = self._files.make(results, size)
        if self._gpu and not on_device:
            self._files.make(theirs, size)
        self._files.check()
        return Share(
            tuple(str(folder / SLOTS) for folder in folders),
            tuple(str(folder / WEIGHTS) for folder in folders),
            str(results),
            size,
            count,
            str(theirs),
            on_device,
        )

    def _reference(self, process: int, side: Side = "reference") -> Seated:
        """Return a seat of the reference for one process of the submission."""
        if (side, process) not in self._references:
            seat, folder = self._starting.seat(side, f"{side}-{process}")
            self._references[side, process] = seat, folder
            try:
                self._import(seat, Submission(self.task.reference), folder)
            except Ended as ended:
                raise fault_of_task(ended) from None
        return self._references[side, process]

    @contextmanager
    def _seat(self, process: int) -> Iterator[Seated]:
        """Provide a seat of the submission, and end it with all its processes."""
        seat, folder = self._starting.seat("submission", f"submission-{process}")
        known = tree.own_children()
        try:
            yield seat, folder
        finally:
            seat.close()
            # At once: an orphan of a guard that was killed has this process for a parent.
            known |= {worker.guard for worker in self._workers()}
            self._orphaned |= tree.end_orphans(known)
            self._starting.remove(folder)

    def _import(self, seat: Seat, submission: Submission, folder: Path) -> Restrictions:
        seat.hello()
        isolation = self.settings.isolation if seat.side == "submission" else "process"
        request = Import(
            self.task,
            self.case,
            submission,
            seat.side,
            isolation,
            str(self._starting.scratch_of(folder)),
            str(folder),
            self._device,
        )
        imported = seat.ask(request)
        if not isinstance(imported, Imported):
            raise Ended("crashed", "its process answered another request than the clerk's")
        return imported.restrictions

    def _build(self, seat: Seat, folder: Path, shared: Shared, number: int) -> None:
        loaded = self.load()
        count = self._slot_count()
        seat.ask(
            Build(
                loaded.inputs,
                loaded.state,
                loaded.init,
                shared.slots[number],
                str(folder / WEIGHTS),
                count,
                self._seed,
                shared.others if number else shared.results,
                self._results_bytes(),
                loaded.views,
            )
        )
