"""What would a gate measure, and does each side run: once through, before the first pair?

Afterwards the caches of each side are full, and it is known which cases fail, and that each side
runs its own code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from gpuperf.errors import CannotMeasure, GpuperfError, Incomplete, UsageError
from gpuperf.gate.evidence import disturbance
from gpuperf.gate.plan import GatePlan
from gpuperf.gate.sides import LABELS, Label, Side, packages_of, refuse_foreign
from gpuperf.model.contract import Contract, DeviceFacts
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.model.workload import Case
from gpuperf.run.launcher import Launcher
from gpuperf.run.plan import Conditions, plan_contracts
from gpuperf.run.suite import Entry, Suite, plan_suite
from gpuperf.run.supervisor import DEADLINE_S, Supervisor

Facts = Mapping[str, str | int | float | bool | None]

FINDINGS = ("oom", "skipped")  # on both sides alike they are no one's fault


class Watcher(Protocol):
    """Hears what a gate is doing."""

    def say(self, text: str) -> None:
        """A sentence."""

    def stage(self, name: str, records: int) -> None:
        """The next *records* records are of this stage."""

    def begin(self, case: str) -> None:
        """The next case."""

    def hear(self, phase: str, samples: int) -> None:
        """A sign of life of the case."""

    def done(self, label: Label, record: Record) -> None:
        """A case was measured."""


@dataclass(frozen=True)
class Asked:
    """A gate's plan, its folder, and what may differ when it is resumed."""

    plan: GatePlan
    folder: Path
    command: tuple[str, ...] = ()
    deadline_s: float = DEADLINE_S
    budget_s: float | None = None
    earlier: str = ""
    overruled: str = ""


@dataclass(frozen=True)
class Primed:
    """Both sides once through: the device, the contract, each side's cases by id and its records.

    `unfit` are cases that cannot be compared, `left_out` those that neither side can run, each with
    its reason.
    """

    opened: Mapping[Label, Opened]
    contract: Contract
    cases: Mapping[Label, Mapping[str, Case]]
    sentinels: tuple[str, ...]
    records: Mapping[Label, Mapping[str, Record]] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> tuple[str, ...]:
        """What the suite names, on either side."""
        every = dict.fromkeys((*self.cases["base"], *self.cases["head"]))
        return tuple(case for case in every if case not in self.sentinels)

    @property
    def fit(self) -> tuple[str, ...]:
        """The cases that are judged."""
        out = {*self.unfit, *self.left_out, *self.sentinels}
        return tuple(case for case in self.cases["base"] if case not in out)


def sentinels_of(device: DeviceFacts) -> Suite:
    """A copy and a matmul of the library: no change of a kernel can touch them."""
    copied, size = ("48M", "3072") if device.kind != "cpu" else ("768k", "320")
    dtype = "bf16" if "bf16" in device.dtypes and device.kind != "cpu" else "fp32"
    entries = (
        Entry("copy", None, ("torch",), {"n": copied, "dtype": "fp32"}),
        Entry("matmul", size, ("torch",), {"dtype": dtype}),
    )
    return Suite("sentinels", "", entries, Conditions())


def describe_sides(
    asked: Asked, launchers: Mapping[Label, Launcher]
) -> tuple[Primed, dict[Label, Supervisor]]:
    """What each side would measure, and the supervisors whose workers told it.

    Raises: UsageError, CannotMeasure.
    """
    supervisors = {
        label: Supervisor(launchers[label], asked.plan.device, asked.deadline_s) for label in LABELS
    }
    opened: dict[Label, Opened] = {}
    planned: dict[Label, dict[str, Case]] = {}
    refused: dict[Label, dict[int, GpuperfError]] = {}
    try:
        for label in LABELS:
            opened[label] = supervisors[label].open()
            planned[label], refused[label] = _planned(
                asked.plan.suite, supervisors[label], opened[label].device
            )
        for index in refused["base"].keys() & refused["head"].keys():
            raise refused["head"][index]
        device = opened["base"].device
        own = {
            label: plan_suite(
                sentinels_of(device), cache(supervisors[label].describe), device, cached=False
            )
            for label in LABELS
        }
    except BaseException:
        close_all(supervisors)
        raise
    unfit: dict[str, str] = {}
    for label, other in zip(LABELS, reversed(LABELS), strict=True):
        why = next((str(e) for e in refused[other].values()), "it has no such case")
        for name in planned[label].keys() - planned[other].keys():
            unfit[name] = f"only the {label} has it; the {other}: {why}"
    cases: dict[Label, Mapping[str, Case]] = {
        label: {**planned[label], **{case.id: case for case in own[label]}} for label in LABELS
    }
    contract = plan_contracts(device, asked.plan.suite.conditions)[0]
    names = tuple(case.id for case in own["base"])
    for name in names:
        if name in planned["base"] or name in planned["head"]:
            close_all(supervisors)
            raise UsageError(f"{name} is a sentinel of every gate", "leave it out of the suite")
    return Primed(opened, contract, cases, names, unfit=unfit), supervisors


def close_all(supervisors: Mapping[Label, Supervisor]) -> None:
    """End their workers."""
    for supervisor in supervisors.values():
        supervisor.renew()


def _planned(
    suite: Suite, supervisor: Supervisor, device: DeviceFacts
) -> tuple[dict[str, Case], dict[int, GpuperfError]]:
    """The cases of *suite* on one side, and the entries that cannot be planned there."""
    found: dict[str, Case] = {}
    refused: dict[int, GpuperfError] = {}
    describe = cache(supervisor.describe)
    for index, entry in enumerate(suite.entries):
        try:
            one = replace(suite, entries=(entry,))
            for case in plan_suite(one, describe, device, cached=False):
                if found.setdefault(case.id, case).source != case.source:
                    told = f"{case.id} is of {case.source} and of {found[case.id].source}"
                    raise UsageError(told, "give one of the workloads another name")
        except GpuperfError as error:
            refused[index] = error
    return found, refused


def prime(
    asked: Asked,
    sides: tuple[Side, Side],
    launchers: Mapping[Label, Launcher],
    watch: Watcher,
    repository: Path | None,
) -> Primed:
    """Each side once through all of its cases: its caches are full then, and it is known what
    fails."""
    primed, supervisors = describe_sides(asked, launchers)
    wanted = [case for case in primed.cases["base"] if case not in primed.unfit]
    records: dict[Label, dict[str, Record]] = {label: {} for label in LABELS}
    own = 0
    try:
        asked.plan.project.refuse_unmatched(primed.named)
        asked.plan.rule.refuse_unreachable(len(primed.named))
        _refuse_another(primed.opened)
        supervisors["head"].renew()  # its context would be another process on the device
        watch.stage("prime", 2 * len(wanted))
        for side in sides:
            supervisor = supervisors[side.label]
            supervisor.listen = watch.hear
            for name in wanted:
                watch.begin(name)
                record = supervisor.measure(
                    asked.plan.id, primed.cases[side.label][name], primed.contract, asked.plan.seed
                )
                records[side.label][name] = record
                watch.done(side.label, record)
                if reason := disturbance(record):
                    told = f"{reason} while the {side.label} was primed"
                    raise Incomplete(told, "let nothing else use the device")
            if repository is not None:
                folders = (str(repository), *(s.place.folder for s in sides))
                loaded = supervisor.loaded(folders, packages_of(side))
                own += refuse_foreign(side, loaded, repository)
            supervisor.renew()
    finally:
        close_all(supervisors)
    if repository is not None and not own:
        raise CannotMeasure(
            "no case runs code of this repository: both sides would be the same",
            'a suite names a workload of yours by its file: op = "./bench/mine.py"',
        )
    unfit, left_out = _sorted_out(records, wanted)
    return replace(primed, records=records, unfit={**primed.unfit, **unfit}, left_out=left_out)


def _sorted_out(
    records: Mapping[Label, Mapping[str, Record]], wanted: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The cases that cannot be compared, and those that neither side can run."""
    unfit, left_out = {}, {}
    for name in wanted:
        base, head = records["base"][name], records["head"][name]
        if base.status == head.status == "ok":
            told = differing(base.fingerprint.hard, head.fingerprint.hard)
            if told:
                unfit[name] = ", ".join(told)
        elif base.status == head.status and base.status in FINDINGS:
            left_out[name] = f"{base.status}: {base.reason}"
        else:
            said = {
                label: f"{r.status} {r.reason}".strip()
                for label, r in (("base", base), ("head", head))
            }
            unfit[name] = f"base: {said['base'][:150]}; head: {said['head'][:150]}"
    return unfit, left_out


def differing(one: Facts, other: Facts) -> tuple[str, ...]:
    """Every fact that the base (*one*) and the head do not share, in words."""
    return tuple(
        f"{name} is {one.get(name)!r} on the base and {other.get(name)!r} on the head"
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
    )


def _refuse_another(opened: Mapping[Label, Opened]) -> None:
    """Raises: CannotMeasure where the sides are not on one device."""
    told = differing(opened["base"].fingerprint.hard, opened["head"].fingerprint.hard)
    if told:
        why = ", ".join(told)
        raise CannotMeasure(f"the sides are not comparable: {why}", "one device for both")
