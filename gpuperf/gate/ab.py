"""Run a gate from its request to its verdict: measure base and head in pairs of fresh processes.

Every record goes at once into one of two run files in the gate's folder, so that an interrupted
gate continues where they end. A verdict that does not pass is written before the first pair, and
the gate's own verdict before anything else is rendered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import gpuperf
from gpuperf.errors import CannotMeasure, GpuperfError, Incomplete, UsageError
from gpuperf.gate.calibration import quote, stored_calibration
from gpuperf.gate.causes import alike, cause_of
from gpuperf.gate.evidence import GateState, gather
from gpuperf.gate.forecast import Pace, keep_pace
from gpuperf.gate.plan import GatePlan
from gpuperf.gate.prime import LONGEST, GateRequest, PrimedSides, differing, prime
from gpuperf.gate.progress import GateProgress
from gpuperf.gate.rule import Judged, judge
from gpuperf.gate.schedule import PairRunner
from gpuperf.gate.sides import LABELS, Label, Side
from gpuperf.gate.verdict import (
    CaseVerdict,
    GateReport,
    SideSummary,
    conclude,
    middles,
    write_report,
)
from gpuperf.model.contract import Counting
from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Header, Record, Run
from gpuperf.peaks.find import find_peaks
from gpuperf.run.launcher import Launcher
from gpuperf.run.noise import keep_noise
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header
from gpuperf.run.store import read_run

AHEAD = 3  # workers that import torch while another measures on a GPU; on a CPU they would disturb
MOST_DIAGNOSED = 20  # regressed cases whose cause is determined
VERDICT = "verdict.json"
WAYS = "its processes began another way ($GPUPERF_PROCESSES)"


def gate_ab(
    request: GateRequest,
    sides: tuple[Side, Side],
    launchers: Mapping[Label, Launcher],
    watch: GateProgress,
    repository: Path | None = None,
) -> GateReport:
    """Run the gate of *request*, write its verdict into the folder, and return the report.

    With a *repository* each side must run code of its own worktree. An interrupt or an error after
    the first pair has begun makes the verdict incomplete.

    Raises: UsageError, CannotMeasure or Incomplete before the first pair; KeyboardInterrupt after
    the verdict was written.
    """
    began = time.monotonic()
    primed = prime(request, sides, launchers, watch, repository)
    gate = _RunningGate(request, sides, launchers, watch, primed, began)
    path = request.folder / VERDICT
    write_report(gate.report(gate.state(), ended="the gate was killed"), path)
    interrupted: KeyboardInterrupt | None = None
    ended = ""
    try:
        gate.measure()
    except (Incomplete, CannotMeasure, UsageError) as error:
        ended = str(error)
    except KeyboardInterrupt as error:
        ended, interrupted = "it was interrupted", error
    report = gate.report(gate.state(), ended)
    write_report(report, path)
    if report.outcome == "regressed":
        try:
            report = gate.diagnosed(report)
        except (GpuperfError, ValueError, KeyboardInterrupt) as error:
            watch.say(f"the causes are not known: {error or 'interrupted'}")
        write_report(report, path)
    for label in LABELS:
        keep_noise(primed.opened[label], primed.contract, gate.records[label])
    if interrupted is not None:
        raise interrupted
    return report


@dataclass
class _RunningGate:
    """A gate that has measured each side once (`primed`), with the records of its pairs so far."""

    request: GateRequest
    sides: tuple[Side, Side]
    launchers: Mapping[Label, Launcher]
    watch: GateProgress
    primed: PrimedSides
    began: float
    records: dict[Label, list[Record]] = field(default_factory=lambda: {"base": [], "head": []})
    _peaks: Peaks | None = None
    _took_s: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._peaks, _ = find_peaks(self.primed.opened["base"].device)
        for label in LABELS:
            if self._file(label).exists():
                run = read_run(self._file(label))
                self._refuse_mixed(label, run)
                self.records[label] = list(run.records)
            else:
                with RunWriter(self._file(label)) as writer:
                    writer.header(self._header(label))

    @property
    def _plan(self) -> GatePlan:
        return self.request.plan

    def _file(self, label: Label) -> Path:
        return self.request.folder / f"{label}.jsonl"

    def _refuse_mixed(self, label: Label, run: Run) -> None:
        """Raise CannotMeasure if *run*, the file of an interrupted gate, was measured with another
        device, software, contract or list of cases."""
        then, now, where = run.header, self._header(label), ("in its files", "now")
        reasons = [
            *differing(then.fingerprint.hard, now.fingerprint.hard, where),
            *differing(then.fingerprint.soft, now.fingerprint.soft, where),
            *([WAYS] if then.started != now.started else []),
            *(["the contract is another"] if then.contract != now.contract else []),
            *(["the cases are others"] if then.plan != now.plan else []),
        ]
        if reasons:
            raise CannotMeasure(f"the gate cannot be resumed: {reasons[0]}", "begin a new gate")

    def _header(self, label: Label) -> Header:
        names = (*self.primed.fit, *self.primed.sentinels)
        return make_header(
            f"{self._plan.id}-{label}",
            self.request.command,
            [self.primed.cases[label][name] for name in names],
            [self.primed.contract],
            self.primed.opened[label],
            self._peaks,
            seed=self._plan.seed,
        )

    @property
    def slowed(self) -> Mapping[str, float]:
        """Return the cases that are slowed down on purpose, each with the fraction (0.05: 5 %)."""
        records = self.primed.records["base"]
        times = {n: r.samples.median_s for n in self.primed.fit if (r := records[n]).samples}
        return {
            max(times, key=times.__getitem__) if name == LONGEST and times else name: share
            for name, share in self._plan.slower.items()
        }

    def state(self) -> GateState:
        """Return the state of the gate after the records so far."""
        fit, plan = self.primed.fit, self._plan
        margins = plan.project.margins_of(fit)
        return gather(self.records, fit, self.primed.sentinels, plan.rule, margins)

    def measure(self) -> None:
        """Measure pairs until the rule has all screening and confirming pairs.

        Raises: Incomplete, CannotMeasure.
        """
        state = self.state()
        if not self.primed.fit:
            return
        with RunWriter(self._file("base")) as base, RunWriter(self._file("head")) as head:
            writers: Mapping[Label, RunWriter] = {"base": base, "head": head}
            for writer in writers.values():
                writer.resume()

            def keep(label: Label, record: Record) -> None:
                self.records[label].append(record)
                writers[label].record(record)
                self.watch.done(label, record)

            runner = self._runner(keep)
            try:
                while not state.complete:
                    self._refuse_endless(state)
                    self._measure_pair(runner, state)
                    state = self.state()
            finally:
                runner.close()
                self._keep_pace()

    def _measure_pair(self, runner: PairRunner, state: GateState) -> None:
        stage, names = self._stage(state)
        self.watch.stage(stage, 2 * len(names))
        runs: Mapping[Label, str] = {label: f"{self._plan.id}-{label}" for label in LABELS}
        cases = {label: [self.primed.cases[label][name] for name in names] for label in LABELS}
        start = time.monotonic()
        runner.pair(runs, cases, state.next)
        took_s = (time.monotonic() - start) / 2
        self._took_s.setdefault(stage.split()[0], []).append(took_s)

    def _keep_pace(self) -> None:
        """Store the mean seconds of a process of each stage, for the next forecast."""
        screen, confirm = (self._took_s.get(name, []) for name in ("screen", "confirm"))
        if screen:
            pace = Pace(fmean(screen), fmean(confirm) if confirm else 0.0)
            keep_pace(self.primed.opened["base"], self.primed.fit, pace)

    def _stage(self, state: GateState) -> tuple[str, tuple[str, ...]]:
        """Return the stage of the next pair (`screen 2 of 6`), and the cases that it measures."""
        rule, sound = self._plan.rule, state.next - len(state.discarded)
        if state.suspects is None:
            stage = f"screen {sound + 1} of {rule.screen_pairs}"
            return stage, (*self.primed.fit, *self.primed.sentinels)
        done = sound - rule.screen_pairs
        cases = [case for case in self.primed.fit if case in state.suspects]
        stage = f"confirm {len(cases)} cases, {done + 1} of {rule.confirm_pairs}"
        return stage, (*cases, *self.primed.sentinels)

    def _refuse_endless(self, state: GateState) -> None:
        """Raise Incomplete if over `screen_pairs` pairs were disturbed, or the budget is spent."""
        if len(state.discarded) > self._plan.rule.screen_pairs:
            last = state.discarded[-1].reason
            message = f"{len(state.discarded)} pairs were disturbed, the last one because: {last}"
            raise Incomplete(message, "end the other programs that use the device")
        spent, budget_s = time.monotonic() - self.began, self.request.budget_s
        if budget_s is not None and spent > budget_s:
            message = f"the budget of {budget_s / 60:g} min is spent"
            raise Incomplete(message, "continue with --resume and the folder of the gate")

    def _runner(self, keep: Callable[[Label, Record], None]) -> PairRunner:
        opened = self.primed.opened["base"]
        extra = {
            name: share * samples.median_s
            for name, share in self.slowed.items()
            if (samples := self.primed.records["base"][name].samples) is not None
        }
        return PairRunner(
            self.launchers,
            self._plan.device,
            self.primed.contract,
            self._plan.seed,
            keep,
            self.watch.begin,
            self.watch.hear,
            self.request.deadline_s,
            extra,
            AHEAD if opened.device.kind != "cpu" and opened.started == "spawned" else 0,
            opened,
        )

    def report(self, state: GateState, ended: str = "") -> GateReport:
        """Return the report of a gate in this *state*; *ended* says why it stopped early, if so."""
        request, primed, plan = self.request, self.primed, self._plan
        whole = state.suspects is not None and (state.complete or not ended)
        judged = judge(state.evidence, plan.rule) if whole else {}
        opened = primed.opened["base"]
        report = GateReport(
            id=plan.id,
            created=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
            gpuperf=gpuperf.__version__,
            kind="ab",
            base=self._summary(self.sides[0]),
            head=self._summary(self.sides[1]),
            device=opened.device.name,
            suite=plan.suite.name,
            contract=primed.contract,
            rule=plan.rule,
            cases=self._cases(state, judged),
            target=plan.target,
            sentinels=state.sentinels if whole else {},
            discarded=state.discarded,
            left_out=primed.left_out,
            notes=self._notes(),
            calibration=quote(stored_calibration(opened, plan.suite.name, plan.rule)),
            ended=ended,
            earlier=request.earlier,
            overruled=request.overruled,
            pairs=state.next,
            slowed=self.slowed,
            took_s=time.monotonic() - self.began,
        )
        return conclude(report)

    def _cases(self, state: GateState, judged: Mapping[str, Judged]) -> tuple[CaseVerdict, ...]:
        sides = self.primed.cases
        fields = {**sides["head"], **sides["base"]}
        owners = self._plan.project.owners_of(sides["base"])
        verdicts = [self._case(name, state, judged.get(name)) for name in self.primed.fit]
        verdicts += [
            CaseVerdict(name, Judged("NOT_COMPARABLE", reason=why))
            for name, why in self.primed.unfit.items()
        ]
        return tuple(
            replace(v, owner=owners.get(v.case, ""), fields=fields[v.case]) for v in verdicts
        )

    def _case(self, name: str, state: GateState, judged: Judged | None) -> CaseVerdict:
        evidence = state.evidence[name]
        if judged is None:
            return CaseVerdict(name, Judged("NOT_COMPARABLE", reason="not measured to the end"))
        if name in state.failed and judged.verdict == "NOT_COMPARABLE":
            judged = replace(judged, reason=state.failed[name])
        return CaseVerdict(name, judged, evidence, None, *middles(evidence, None))

    def _summary(self, side: Side) -> SideSummary:
        soft = dict(self.primed.opened[side.label].fingerprint.soft)
        return SideSummary(side.name, side.commit, soft, self._file(side.label).name)

    def _notes(self) -> tuple[str, ...]:
        base, head = (self.primed.opened[label].fingerprint for label in LABELS)
        same = self.sides[0].commit and self.sides[0].commit == self.sides[1].commit
        return (
            *self._plan.notes,
            *differing(base.soft, head.soft),
            *(["both sides are the same commit: nothing should differ"] if same else []),
            *(
                f"{name} of the head was slowed down by {share * 100:g} %, to see it detected"
                for name, share in self.slowed.items()
            ),
        )

    def diagnosed(self, report: GateReport) -> GateReport:
        """Return *report* with the cause of each regression, from one more process of each side
        that counts bytes and operations."""
        slower = [c.case for c in report.cases if c.judged.verdict == "REGRESSED"][:MOST_DIAGNOSED]
        runner = self._runner(lambda label, record: None)
        cuda = self.primed.opened["base"].device.kind == "cuda"
        counting: Counting = "kernels" if cuda else "off"
        self.watch.stage("causes", 2 * len(slower))
        counted: dict[Label, dict[str, Record]] = {}
        with closing(runner):
            for label in LABELS:
                cases = [self.primed.cases[label][name] for name in slower]
                records = runner.once(label, self._plan.id, cases, counting)
                counted[label] = {record.case.id: record for record in records}
        return replace(report, cases=tuple(self._explained(c, counted) for c in report.cases))

    def _explained(
        self, case: CaseVerdict, counted: Mapping[Label, Mapping[str, Record]]
    ) -> CaseVerdict:
        if case.judged.verdict != "REGRESSED":
            return case
        base, head = (counted[label].get(case.case) for label in LABELS)
        cause = cause_of(base, head, self._peaks) if base and head else None
        first, second = (self.primed.records[label][case.case] for label in LABELS)
        same = alike(first, second)
        return replace(case, cause=cause, notes=(*case.notes, *([same] if same else [])))
