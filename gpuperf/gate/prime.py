"""Measure all cases once on each side before the first pair, to fill caches and to check the sides.

This determines which cases fail or cannot be compared, and that each side runs its own code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from gpuperf.errors import CannotMeasure, GpuperfError, Incomplete, UnknownName, UsageError
from gpuperf.gate.evidence import disturbance
from gpuperf.gate.plan import GatePlan
from gpuperf.gate.progress import GateProgress
from gpuperf.gate.schedule import measure_each
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

LONGEST = "the longest"  # a name for the case that takes longest
TOLERATED = ("oom", "skipped")  # a case with this status on both sides is left out


@dataclass(frozen=True)
class GateRequest:
    """A gate's plan and its folder, and what may differ if the gate is resumed: its command, its
    deadline for a silent case and its budget in seconds, the outcome of an `earlier` gate of the
    same code, and the reason why that is `overruled`."""

    plan: GatePlan
    folder: Path
    command: tuple[str, ...] = ()
    deadline_s: float = DEADLINE_S
    budget_s: float | None = None
    earlier: str = ""
    overruled: str = ""


@dataclass(frozen=True)
class PrimedSides:
    """Both sides before the first pair: device, contract, cases by id, and a record of each case.

    `unfit` are the cases that cannot be compared, and `left_out` those that neither side can run,
    each with its reason.
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
        """Return the cases that the suite names on either side, without sentinels."""
        every = dict.fromkeys((*self.cases["base"], *self.cases["head"]))
        return tuple(case for case in every if case not in self.sentinels)

    @property
    def fit(self) -> tuple[str, ...]:
        """Return the cases that are measured in pairs and judged."""
        out = {*self.unfit, *self.left_out, *self.sentinels}
        return tuple(case for case in self.cases["base"] if case not in out)


def sentinels_of(device: DeviceFacts) -> Suite:
    """Return the sentinels, a copy and a matmul of torch, whose time no change of a kernel moves.

    If it changes, the machine has changed, and the gate is contaminated.
    """
    copied, size = ("48M", "3072") if device.kind != "cpu" else ("768k", "320")
    dtype = "bf16" if "bf16" in device.dtypes and device.kind != "cpu" else "fp32"
    entries = (
        Entry("copy", None, ("torch",), {"n": copied, "dtype": "fp32"}),
        Entry("matmul", size, ("torch",), {"dtype": dtype}),
    )
    return Suite("sentinels", "", entries, Conditions())


def describe_sides(
    request: GateRequest, launchers: Mapping[Label, Launcher]
) -> tuple[PrimedSides, dict[Label, Supervisor]]:
    """Return the cases of each side, not measured yet, and the supervisors with open workers.

    Raises: UsageError, CannotMeasure.
    """
    plan = request.plan
    supervisors = {
        label: Supervisor(launchers[label], plan.device, request.deadline_s) for label in LABELS
    }
    try:
        return _described(plan.suite, supervisors), supervisors
    except BaseException:
        close_all(supervisors)
        raise


def _described(suite: Suite, supervisors: Mapping[Label, Supervisor]) -> PrimedSides:
    opened: dict[Label, Opened] = {}
    planned: dict[Label, dict[str, Case]] = {}
    refused: dict[Label, dict[int, GpuperfError]] = {}
    for label in LABELS:
        opened[label] = supervisors[label].open()
        planned[label], refused[label] = _planned(suite, supervisors[label], opened[label].device)
    for index in refused["base"].keys() & refused["head"].keys():
        raise refused["head"][index]
    device = opened["base"].device
    sentinels: dict[Label, dict[str, Case]] = {}
    for label in LABELS:
        describe = cache(supervisors[label].describe)
        cases = plan_suite(sentinels_of(device), describe, device, cached=False)
        sentinels[label] = {case.id: case for case in cases}
    for name in sentinels["base"]:
        if name in planned["base"] or name in planned["head"]:
            raise UsageError(f"{name} is a sentinel of every gate", "leave it out of the suite")
    unfit: dict[str, str] = {}
    for label, other in zip(LABELS, reversed(LABELS), strict=True):
        why = next((str(e) for e in refused[other].values()), "it has no such case")
        for name in planned[label].keys() - planned[other].keys():
            unfit[name] = f"only the {label} has it; the {other}: {why}"
    return PrimedSides(
        opened,
        plan_contracts(device, suite.conditions)[0],
        {label: {**planned[label], **sentinels[label]} for label in LABELS},
        tuple(sentinels["base"]),
        unfit=unfit,
    )


def close_all(supervisors: Mapping[Label, Supervisor]) -> None:
    """End the workers of all *supervisors*."""
    for supervisor in supervisors.values():
        supervisor.renew()


def _planned(
    suite: Suite, supervisor: Supervisor, device: DeviceFacts
) -> tuple[dict[str, Case], dict[int, GpuperfError]]:
    """Return the cases of *suite* on one side by id, and for each of its entries that this side
    cannot plan, by index, the error."""
    cases: dict[str, Case] = {}
    refused: dict[int, GpuperfError] = {}
    describe = cache(supervisor.describe)
    for index, entry in enumerate(suite.entries):
        try:
            alone = replace(suite, entries=(entry,))
            for case in plan_suite(alone, describe, device, cached=False):
                if (source := cases.setdefault(case.id, case).source) != case.source:
                    message = f"{case.id} is a case of {case.source} and of {source}"
                    raise UsageError(message, "give one of the workloads another name")
        except GpuperfError as error:
            refused[index] = error
    return cases, refused


def prime(
    request: GateRequest,
    sides: tuple[Side, Side],
    launchers: Mapping[Label, Launcher],
    watch: GateProgress,
    repository: Path | None,
) -> PrimedSides:
    """Measure all cases once on each side. Raises: UsageError, CannotMeasure, Incomplete."""
    primed, supervisors = describe_sides(request, launchers)
    plan = request.plan
    wanted = [case for case in primed.cases["base"] if case not in primed.unfit]
    records: dict[Label, Mapping[str, Record]] = {}
    own_modules = 0
    try:
        plan.project.refuse_unmatched(primed.named)
        if unknown := plan.slower.keys() - {LONGEST, *primed.named}:
            raise UnknownName("case", min(unknown), primed.named)
        plan.rule.refuse_unreachable(len(primed.named))
        _refuse_two_devices(primed.opened)
        supervisors["head"].renew()  # its context would be another process on the device
        watch.stage("prime", 2 * len(wanted))
        for side in sides:
            supervisor = supervisors[side.label]
            records[side.label] = _measured_once(plan, primed, wanted, side, supervisor, watch)
            if repository is not None:
                folders = (str(repository), *(s.place.folder for s in sides))
                loaded = supervisor.loaded(folders, packages_of(side))
                own_modules += refuse_foreign(side, loaded, repository)
            supervisor.renew()
    finally:
        close_all(supervisors)
    if repository is not None and not own_modules:
        raise CannotMeasure(
            "no case runs code of this repository: both sides would be the same",
            'name a workload of yours by its file in a suite: op = "./bench/mine.py"',
        )
    unfit, left_out = _sorted_out(records, wanted)
    return replace(primed, records=records, unfit={**primed.unfit, **unfit}, left_out=left_out)


def _measured_once(
    plan: GatePlan,
    primed: PrimedSides,
    wanted: Sequence[str],
    side: Side,
    supervisor: Supervisor,
    watch: GateProgress,
) -> dict[str, Record]:
    cases = [primed.cases[side.label][name] for name in wanted]
    records: dict[str, Record] = {}
    supervisor.listen = watch.hear
    for record in measure_each(supervisor, plan.id, cases, primed.contract, plan.seed, watch.begin):
        records[record.case.id] = record
        watch.done(side.label, record)
        if reason := disturbance(record):
            message = f"{reason} while the {side.label} was primed"
            raise Incomplete(message, "end the other programs that use the device")
    return records


def _sorted_out(
    records: Mapping[Label, Mapping[str, Record]], wanted: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the cases that cannot be compared, and those neither side can run, with reasons."""
    unfit, left_out = {}, {}
    for name in wanted:
        base, head = records["base"][name], records["head"][name]
        if base.status == head.status == "ok":
            if reasons := differing(base.fingerprint.hard, head.fingerprint.hard):
                unfit[name] = ", ".join(reasons)
        elif base.status == head.status and base.status in TOLERATED:
            left_out[name] = f"{base.status}: {base.reason}"
        else:
            first, second = (f"{r.status} {r.reason}".strip()[:150] for r in (base, head))
            unfit[name] = f"base: {first}; head: {second}"
    return unfit, left_out


def differing(
    first: Facts, second: Facts, where: tuple[str, str] = ("on the base", "on the head")
) -> tuple[str, ...]:
    """Return a sentence for each fact in which *first* and *second* differ."""
    return tuple(
        f"{name} is {first.get(name)!r} {where[0]} and {second.get(name)!r} {where[1]}"
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    )


def _refuse_two_devices(opened: Mapping[Label, Opened]) -> None:
    """Raise CannotMeasure if the sides run on different devices."""
    if reasons := differing(opened["base"].fingerprint.hard, opened["head"].fingerprint.hard):
        message = f"the sides are not comparable: {', '.join(reasons)}"
        raise CannotMeasure(message, "run both sides on one device")
