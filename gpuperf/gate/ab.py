"""A gate from its request to its verdict: two sides, primed, in pairs of fresh processes.

Everything measured is in two run files of the gate's folder as it comes, so that an interrupted
gate goes on where they end. The verdict is written before anything else is rendered, and one that
passes nothing stands there from the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import gpuperf
from gpuperf.errors import CannotMeasure, GpuperfError, Incomplete, UsageError
from gpuperf.gate.calibration import kept, quote
from gpuperf.gate.causes import alike, cause_of
from gpuperf.gate.evidence import Found, gather
from gpuperf.gate.forecast import Pace, keep_pace
from gpuperf.gate.plan import GatePlan
from gpuperf.gate.prime import Asked, Primed, Watcher, differing, prime
from gpuperf.gate.rule import Judged, judge
from gpuperf.gate.schedule import Injection, Passes
from gpuperf.gate.sides import LABELS, Label, Side
from gpuperf.gate.verdict import CaseVerdict, GateReport, SideTold, conclude, middles, write_report
from gpuperf.model.contract import Counting
from gpuperf.model.peaks import Peaks
from gpuperf.model.record import Header, Record, Run
from gpuperf.peaks.find import find_peaks
from gpuperf.run.launcher import Launcher
from gpuperf.run.noise import keep_noise
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import make_header
from gpuperf.run.store import read_run

AHEAD = 3  # workers that import torch meanwhile; beside a GPU only: a CPU would be disturbed
MOST_DIAGNOSED = 20
VERDICT = "verdict.json"
LONGEST = "the longest"  # in place of a case that is to be slowed down


def gate_ab(
    asked: Asked,
    sides: tuple[Side, Side],
    launchers: Mapping[Label, Launcher],
    watch: Watcher,
    repository: Path | None = None,
) -> GateReport:
    """The report of a gate, which is in the folder by then too.

    With a *repository* each side must run code of its own worktree. Raises: UsageError,
    CannotMeasure before the first pair; KeyboardInterrupt after what there is was written.
    """
    began = time.monotonic()
    primed = prime(asked, sides, launchers, watch, repository)
    files: Mapping[Label, Path] = {label: asked.folder / f"{label}.jsonl" for label in LABELS}
    gate = _Gate(asked, sides, launchers, watch, primed, files, began)
    write_report(gate.report(gate.found(), ended="the gate was killed"), asked.folder / VERDICT)
    interrupted: KeyboardInterrupt | None = None
    ended = ""
    try:
        found = gate.measure()
    except (Incomplete, CannotMeasure, UsageError) as error:
        found, ended = gate.found(), str(error)
    except KeyboardInterrupt as error:
        found, ended, interrupted = gate.found(), "it was interrupted", error
    report = gate.report(found, ended)
    write_report(report, asked.folder / VERDICT)
    if report.outcome == "regressed":
        try:
            report = gate.diagnosed(report)
        except (GpuperfError, ValueError, KeyboardInterrupt) as error:
            watch.say(f"the causes are not known: {error or 'interrupted'}")
        write_report(report, asked.folder / VERDICT)
    for label in LABELS:
        keep_noise(primed.opened[label], primed.contract, gate.records[label])
    if interrupted is not None:
        raise interrupted
    return report


@dataclass
class _Gate:
    """A gate under way."""

    asked: Asked
    sides: tuple[Side, Side]
    launchers: Mapping[Label, Launcher]
    watch: Watcher
    primed: Primed
    files: Mapping[Label, Path]
    began: float
    records: dict[Label, list[Record]] = field(default_factory=lambda: {"base": [], "head": []})
    _peaks: Peaks | None = None
    _took_s: dict[str, list[float]] = field(default_factory=dict)

    @property
    def _plan(self) -> GatePlan:
        return self.asked.plan

    def __post_init__(self) -> None:
        self._peaks, _ = find_peaks(self.primed.opened["base"].device)
        for label in LABELS:
            if self.files[label].exists():
                run = read_run(self.files[label])
                self._refuse_mixed(label, run)
                self.records[label] = list(run.records)
            else:
                with RunWriter(self.files[label]) as writer:
                    writer.header(self._header(label))

    def _refuse_mixed(self, label: Label, run: Run) -> None:
        """Raises: CannotMeasure where what was measured by now is of something else."""
        then, now = run.header, self._header(label)
        told = [
            *differing(then.fingerprint.hard, now.fingerprint.hard),
            *differing(then.fingerprint.soft, now.fingerprint.soft),
            *(["the contract is another"] if then.contract != now.contract else []),
            *(["the cases are others"] if then.plan != now.plan else []),
        ]
        if told:
            raise CannotMeasure(
                f"the gate cannot be resumed: {told[0]}".replace(
                    "on the base", "in its files"
                ).replace("on the head", "now"),
                "begin a new gate",
            )

    def _header(self, label: Label) -> Header:
        cases = [self.primed.cases[label][n] for n in (*self.primed.fit, *self.primed.sentinels)]
        opened = self.primed.opened[label]
        return make_header(
            f"{self._plan.id}-{label}",
            self.asked.command,
            cases,
            [self.primed.contract],
            opened,
            self._peaks,
            "",
            None,
            self._plan.seed,
        )

    @property
    def slowed(self) -> Mapping[str, float]:
        """The cases that are slowed down on purpose; LONGEST stands for the one that takes most."""
        records = self.primed.records["base"]
        times = {n: r.samples.median_s for n in self.primed.fit if (r := records[n]).samples}
        return {
            max(times, key=times.__getitem__) if name == LONGEST and times else name: share
            for name, share in self._plan.slower.items()
        }

    def found(self) -> Found:
        """What the records say so far."""
        margins = self._plan.project.margins_of(self.primed.fit)
        return gather(
            self.records, self.primed.fit, self.primed.sentinels, self._plan.rule, margins
        )

    def measure(self) -> Found:
        """Pairs until the rule has all that it wants. Raises: Incomplete, CannotMeasure."""
        found = self.found()
        if not self.primed.fit:
            return found
        with RunWriter(self.files["base"]) as base, RunWriter(self.files["head"]) as head:
            writers: Mapping[Label, RunWriter] = {"base": base, "head": head}
            for writer in writers.values():
                writer.resume()

            def keep(label: Label, record: Record) -> None:
                self.records[label].append(record)
                writers[label].record(record)
                self.watch.done(label, record)

            passes = self._passes(keep)
            try:
                while not found.complete:
                    self._refuse_endless(found)
                    stage, cases = self._stage(found)
                    self.watch.stage(stage, 2 * len(cases))
                    runs: Mapping[Label, str] = {
                        label: f"{self._plan.id}-{label}" for label in LABELS
                    }
                    chosen = {
                        label: [self.primed.cases[label][name] for name in cases]
                        for label in LABELS
                    }
                    start = time.monotonic()
                    passes.pair(runs, chosen, found.next)
                    took_s = (time.monotonic() - start) / 2
                    self._took_s.setdefault(stage.split()[0], []).append(took_s)
                    found = self.found()
            finally:
                passes.close()
                self._keep_pace()
        return found

    def _keep_pace(self) -> None:
        """What passes took, for the next forecast."""
        screen, confirm = (self._took_s.get(name, []) for name in ("screen", "confirm"))
        if screen:
            pace = Pace(fmean(screen), fmean(confirm) if confirm else 0.0)
            keep_pace(self.primed.opened["base"], self.primed.fit, pace)

    def _stage(self, found: Found) -> tuple[str, tuple[str, ...]]:
        """What the next pair is for, and its cases."""
        rule, sound = self._plan.rule, found.next - len(found.discarded)
        if found.suspects is None:
            name = f"screen {sound + 1} of {rule.screen_pairs}"
            return name, (*self.primed.fit, *self.primed.sentinels)
        done = sound - rule.screen_pairs
        cases = [case for case in self.primed.fit if case in found.suspects]
        name = f"confirm {len(cases)} cases, {done + 1} of {rule.confirm_pairs}"
        return name, (*cases, *self.primed.sentinels)

    def _refuse_endless(self, found: Found) -> None:
        """Raises: Incomplete where too many pairs were disturbed, or the budget is spent."""
        if len(found.discarded) > self._plan.rule.screen_pairs:
            last = found.discarded[-1].reason
            told = f"{len(found.discarded)} pairs were disturbed, the last one since {last}"
            raise Incomplete(told, "let nothing else use the device")
        spent = time.monotonic() - self.began
        if self.asked.budget_s is not None and spent > self.asked.budget_s:
            told = f"the budget of {self.asked.budget_s / 60:g} min is spent"
            raise Incomplete(told, "--resume the folder of the gate")

    def _passes(self, keep: Callable[[Label, Record], None]) -> Passes:
        opened = self.primed.opened["base"]
        extra = {
            name: share * samples.median_s
            for name, share in self.slowed.items()
            if (samples := self.primed.records["base"][name].samples) is not None
        }
        return Passes(
            self.launchers,
            self._plan.device,
            self.primed.contract,
            self._plan.seed,
            keep,
            self.watch.begin,
            self.watch.hear,
            self.asked.deadline_s,
            Injection(extra),
            AHEAD if opened.device.kind != "cpu" else 0,
            opened,
        )

    def report(self, found: Found, ended: str = "") -> GateReport:
        """What can be said by now."""
        asked, primed = self.asked, self.primed
        whole = found.suspects is not None and (found.complete or not ended)
        judged = judge(found.evidence, self._plan.rule) if whole else {}
        owners = self._plan.project.owners_of(primed.cases["base"])
        cases = [
            self._case(name, found, judged.get(name), owners.get(name, "")) for name in primed.fit
        ]
        cases += [
            CaseVerdict(name, Judged("NOT_COMPARABLE", reason=why), owner=owners.get(name, ""))
            for name, why in primed.unfit.items()
        ]
        return conclude(
            GateReport(
                id=self._plan.id,
                created=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
                gpuperf=gpuperf.__version__,
                kind="ab",
                base=self._told(0),
                head=self._told(1),
                device=primed.opened["base"].device.name,
                suite=self._plan.suite.name,
                contract=primed.contract,
                rule=self._plan.rule,
                cases=tuple(cases),
                target=self._plan.target,
                sentinels=found.steady if whole else {},
                discarded=found.discarded,
                left_out=primed.left_out,
                notes=self._notes(),
                calibration=self._known(),
                ended=ended,
                earlier=asked.earlier,
                overruled=asked.overruled,
                pairs=found.next,
                slowed=self.slowed,
                took_s=time.monotonic() - self.began,
            )
        )

    def _case(self, name: str, found: Found, judged: Judged | None, owner: str) -> CaseVerdict:
        evidence = found.evidence[name]
        if judged is None:
            return CaseVerdict(name, Judged("NOT_COMPARABLE", reason="not measured to the end"))
        if name in found.failed and judged.verdict == "NOT_COMPARABLE":
            judged = replace(judged, reason=found.failed[name])
        return CaseVerdict(name, judged, evidence, None, *middles(evidence, None), owner)

    def _told(self, index: int) -> SideTold:
        side = self.sides[index]
        soft = dict(self.primed.opened[side.label].fingerprint.soft)
        return SideTold(side.told, side.commit, soft, self.files[side.label].name)

    def _known(self) -> str:
        """How often such gates were wrong here."""
        plan = self._plan
        return quote(kept(self.primed.opened["base"], plan.suite.name, plan.rule))

    def _notes(self) -> tuple[str, ...]:
        base, head = (self.primed.opened[label].fingerprint for label in LABELS)
        same = self.sides[0].commit and self.sides[0].commit == self.sides[1].commit
        alike_note = ["both sides are the same commit: nothing should differ"] if same else []
        slowed = [
            f"{name} of the head was slowed down by {share * 100:g} %, to see it caught"
            for name, share in self.slowed.items()
        ]
        sided = [note for side in self.sides for note in side.notes]
        return (*self._plan.notes, *differing(base.soft, head.soft), *alike_note, *slowed, *sided)

    def diagnosed(self, report: GateReport) -> GateReport:
        """*report* with the cause of each regression, from one more pass of each side that counts
        bytes and operations; the others are told whether they launch the same."""
        slower = [c.case for c in report.cases if c.judged.verdict == "REGRESSED"]
        slower = slower[:MOST_DIAGNOSED]
        counted: dict[Label, dict[str, Record]] = {label: {} for label in LABELS}
        if slower:
            passes = self._passes(lambda label, record: None)
            cuda = self.primed.opened["base"].device.kind == "cuda"
            counting: Counting = "kernels" if cuda else "off"
            self.watch.stage("causes", 2 * len(slower))
            for label in LABELS:
                cases = [self.primed.cases[label][name] for name in slower]
                records = passes.once(label, self._plan.id, cases, counting)
                counted[label] = {record.case.id: record for record in records}
        return replace(report, cases=tuple(self._explained(c, counted) for c in report.cases))

    def _explained(
        self, case: CaseVerdict, counted: Mapping[Label, Mapping[str, Record]]
    ) -> CaseVerdict:
        base, head = (counted[label].get(case.case) for label in LABELS)
        cause = None
        if base is not None and head is not None:
            cause = cause_of(base, head, self._peaks)
        one, other = (self.primed.records[label].get(case.case) for label in LABELS)
        same = alike(one, other) if one is not None and other is not None else ""
        notes = (same,) if same and case.judged.verdict == "REGRESSED" else ()
        return replace(case, cause=cause, notes=(*case.notes, *notes))
