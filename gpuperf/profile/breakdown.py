"""Divide the seconds of a step into parts, and place its operators under the roofs.

The seconds of a step come from the plain pass, and what the device did in it from the trace, whose
times are fitted to the plain step (`profile.scales`).

Calls of one operator on equal shapes are one record, of which some may copy and others compute (a
batch that moves to the device, and a cast of it): copies are counted apart from kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.errors import UsageError
from gpuperf.model.cost import Cost
from gpuperf.model.metrics import sum_up
from gpuperf.model.record import Header, Kernel, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.profile.losses import Loss, largest_loss
from gpuperf.profile.plainpass import step_s as plain_step_s
from gpuperf.profile.ranks.study import Together, together
from gpuperf.profile.scales import Scales, communicates, fit_step, is_copy, traced_s
from gpuperf.roofline.study import Placement, place

# The parts of a step, in the order of a bar.
PARTS = (
    "compute-bound",
    "memory-bound",
    "latency-bound",
    "other kernels",
    "communication",
    "copies",
    "idle: waiting",
    "idle: data",
    "idle: between kernels",
    "idle: launch or host",
    "not traced",
)
LIMITS = {  # the part of an operator by the resource that bounds it
    "compute": "compute-bound",
    "special function": "compute-bound",
    "memory": "memory-bound",
    "latency": "latency-bound",
}
LATENCY_S = 4e-6  # a kernel that takes less is bound by latency
FAR = 0.05  # share of the roof, under which the calls of a CPU are not bound by it
NO_PASS = "no pass took a step"  # why a region has no time


@dataclass(frozen=True)
class OperatorRow:
    """An operator of a step: the seconds of all its calls, their share of the step, its place under
    the roofs, the one of `PARTS` to which it counts, and its largest loss."""

    record: Record
    seconds: float
    share: float
    placement: Placement | None
    part: str
    loss: Loss | None = None
    copied_s: float = 0.0  # the share of `seconds` that is spent in copies


@dataclass(frozen=True)
class Profile:
    """The seconds of a region's step, by part (`parts`) and by operator.

    `busy_s` are the seconds in which the device worked; None without a trace. `placement` is that
    of the step's compulsory FLOPs and bytes; `hfu` counts all FLOPs of the operators, recomputation
    included. Traced times are multiplied by `scales` to fit the plain step. `together` compares the
    ranks of a distributed program, and has the collectives of any other.
    """

    region: Record
    step_s: float
    busy_s: float | None
    parts: Mapping[str, float]
    operators: tuple[OperatorRow, ...]
    placement: Placement | None
    hfu: float | None
    cuda: bool
    scales: Scales = field(default_factory=Scales)
    together: Together | None = None

    @property
    def plain(self) -> bool:
        """Return whether the step was timed without a profiler."""
        return self.region.primary == "step"

    @property
    def idle_s(self) -> float:
        """Return the idle seconds of a step; 0 without a trace."""
        return 0.0 if self.busy_s is None else max(0.0, self.step_s - self.busy_s)


def longest(profiles: Sequence[Profile]) -> Profile:
    """Return the profile of the region that takes most of the program."""
    return max(profiles, key=whole_s)


def whole_s(profile: Profile) -> float:
    """Return the seconds of a region in the whole program: of a step, times its steps."""
    program = profile.region.program
    return profile.step_s * max(1, program.total if program else 1)


@dataclass(frozen=True)
class KernelUse:
    """A kernel, copy or memset by its name: its launches in a step, their seconds and share of the
    step, the operators that launch it, and its counters if there are any."""

    name: str
    count: int
    seconds: float
    share: float
    operators: tuple[str, ...]
    counters: Mapping[str, float]


def kernels_of(profile: Profile) -> tuple[KernelUse, ...]:
    """Return the kernels, copies and memsets of a step, those that take longest first."""
    launches: dict[str, list[tuple[Kernel, str]]] = {}
    for row in profile.operators:
        for kernel in row.record.kernels:
            launches.setdefault(kernel.name, []).append((kernel, row.record.case.op))
    uses = []
    for name, own in launches.items():
        scale = profile.scales.of(own[0][0]) if profile.cuda else 1.0
        seconds = scale * sum(kernel.time_s or 0.0 for kernel, _ in own)
        operators = tuple(dict.fromkeys(operator for _, operator in own))
        count = sum(kernel.count for kernel, _ in own)
        counters = sum_up(kernel.counters for kernel, _ in own)
        part = seconds / profile.step_s
        uses.append(KernelUse(name, count, seconds, part, operators, counters))
    return tuple(sorted(uses, key=lambda use: -use.seconds))


def profiles(run: Run) -> tuple[Profile, ...]:
    """Return the profile of each region of *run* that has a time; of a distributed program, that of
    the first rank.

    Raises: UsageError if no region has a time.
    """
    timed = [record for record in run.records if is_timed(record)]
    reporter = min((record.rank for record in timed), default=0)
    regions = []
    for record in timed:
        if record.rank == reporter:
            compared = _together(timed, record)
            own = profile_of(record, _operators(run, record), run.header, _waiting(compared))
            regions.append(replace(own, together=compared))
    if not regions:
        reason = next((r.reason for r in run.records if r.kind == "region" and r.reason), "")
        raise UsageError(
            "the run has no region with a time" + (f": {reason}" if reason else ""),
            "use fewer --warmup, or let the program run more steps"
            if reason == NO_PASS
            else "mark a step: gpuperf.step() at the end of each round of the loop",
        )
    return tuple(regions)


def _together(timed: Sequence[Record], region: Record) -> Together | None:
    """Return the comparison of the ranks of *region*; None for one rank without collectives."""
    own = [record for record in timed if record.region == region.region]
    if region.world < 2 and not (region.program and region.program.collectives):
        return None
    ordered = sorted(own, key=lambda record: record.rank)
    return together(ordered, {r.rank: _step_s(r) for r in ordered if r.primary == "step"})


def _waiting(compared: Together | None) -> float | None:
    """Return the seconds in which the reporting rank waits in a traced step; None if they, or those
    in some collectives, are unknown."""
    if compared is None or compared.world < 2:
        return 0.0
    known = not compared.doubt and all(c.waiting_s is not None for c in compared.collectives)
    return compared.rows[0].waiting_s if known else None


def _step_s(region: Record) -> float:
    samples = region.samples
    assert samples is not None
    return plain_step_s(samples) if region.primary == "step" else samples.median_s


def is_timed(record: Record) -> bool:
    """Return whether *record* is of a region that has a time."""
    samples = record.samples
    timed = samples is not None and samples.median_s > 0
    return record.kind == "region" and record.status == "ok" and timed


def _operators(run: Run, region: Record) -> list[Record]:
    key = region.region, region.rank
    return [r for r in run.records if r.kind == "operator" and (r.region, r.rank) == key]


def profile_of(
    region: Record, operators: Sequence[Record], header: Header, waiting_s: float | None = 0.0
) -> Profile:
    """Return the profile of *region* and its *operators* under the roofs of *header*.

    Its rank waited for *waiting_s* seconds a traced step in collectives (None: unknown).
    """
    assert region.samples is not None and region.primary
    step_s = _step_s(region)
    cuda = header.device.kind != "cpu"
    plain = fit_step(region, operators, step_s, waiting_s) if cuda else None
    traced = region.times.get("traced")
    scales = plain.scales if plain else Scales()
    if not cuda and traced is not None and traced.median_s > 0:
        # The profiler lengthens what it times, so only shares of the traced step are used.
        scales = Scales(step_s / traced.median_s)
    rows = [_row(record, step_s, header, scales, cuda) for record in operators]
    rows.sort(key=lambda row: -row.seconds)
    busy_s = plain.busy_s if plain else None
    if not cuda and "busy" in region.times:  # the host is the device
        busy_s = min(step_s, sum(row.seconds for row in rows))
    # Rates are those of the step that is shown, the mean one; `samples` may have another median.
    mean = replace(region, times={**region.times, region.primary: Samples((step_s,))})
    return Profile(
        region,
        step_s,
        busy_s,
        _parts(region, rows, step_s, busy_s, plain.exposed_s if plain else None, cuda),
        tuple(rows),
        _placed(mean, header),
        _hfu(mean, header),
        cuda,
        scales,
    )


def _row(record: Record, step_s: float, header: Header, scales: Scales, cuda: bool) -> OperatorRow:
    """Return the row of *record* in a step of *step_s* seconds, its traced times by *scales*."""
    samples, copied_s = record.samples, 0.0
    scaled_s = scales.kernels * traced_s(record)
    if cuda:
        scaled_s, copied_s = scales.fit(record)
    if samples is not None and record.primary and scaled_s != samples.median_s:
        samples = Samples((scaled_s,))
        record = replace(record, times={**record.times, record.primary: samples})
    seconds = samples.median_s if samples is not None else 0.0
    placed = _placed(record, header) if seconds else None
    part = _part(record, placed, seconds, cuda)
    loss = largest_loss(record, header) if placed and part != "latency-bound" else None
    return OperatorRow(record, seconds, seconds / step_s, placed, part, loss, copied_s)


def _placed(record: Record, header: Header) -> Placement | None:
    """Return the place of *record* under the roofs; None without roofs, costs or a time.

    FLOPs of a kind without a roof, such as special functions, add nothing to the least time: a step
    has FLOPs of every kind, and could otherwise not be placed.
    """
    peaks = header.peaks or header.ceilings
    cost = record.cost
    if peaks is None or cost is None:
        return place(record, header.peaks, header.ceilings)
    known = tuple(flops for flops in cost.flops if peaks.ceiling(flops))
    placed = place(replace(record, cost=Cost(known, cost.bytes)), header.peaks, header.ceilings)
    if placed is None:
        return None
    rate = cost.flop_count / record.samples.median_s if record.samples else 0.0
    return replace(placed, intensity=cost.intensity, attained_flop_per_s=rate)


def _part(record: Record, placed: Placement | None, seconds: float, cuda: bool) -> str:
    if communicates(record):
        return "communication"
    if is_copy(record):
        return "copies"
    launches = sum(kernel.count for kernel in record.kernels)
    if launches and seconds / launches < LATENCY_S:
        return "latency-bound"
    if placed is None or not (placed.intensity > 0 or placed.attained_byte_per_s > 0):
        return "other kernels"
    if not cuda and placed.fraction is not None and placed.fraction < FAR:
        return "latency-bound"
    return LIMITS.get(placed.longer, "other kernels")


def _parts(
    region: Record,
    rows: Sequence[OperatorRow],
    step_s: float,
    busy_s: float | None,
    exposed_s: float | None,
    cuda: bool,
) -> dict[str, float]:
    """Return the seconds of a step in each of `PARTS`, which sum to *step_s*; of *exposed_s* it
    communicates and computes nothing (None: unknown)."""
    parts = dict.fromkeys(PARTS, 0.0)
    if busy_s is None:
        return {**parts, "not traced": step_s}
    for row in rows:
        parts["copies"] += row.copied_s
        parts[row.part] += row.seconds - row.copied_s
    total, linked_s = sum(parts.values()), parts["communication"]
    if exposed_s is not None and total > linked_s:  # what compute hides counts as compute
        share = (busy_s - exposed_s) / (total - linked_s)
        parts = {name: seconds * share for name, seconds in parts.items()}
        parts["communication"] = exposed_s
    elif total:  # kernels that overlap count once
        parts = {name: seconds * busy_s / total for name, seconds in parts.items()}
    idle_s = max(0.0, step_s - busy_s)
    if not cuda:
        waited_s = min(idle_s, max(0.0, _exposed_s(region, step_s) - parts["communication"]))
        parts["communication"] += waited_s
        idle_s -= waited_s
    program = region.program if region.primary == "step" else None
    parts["idle: data"] = min(idle_s, program.data_s if program else 0.0)
    idle_s -= parts["idle: data"]
    waits = region.program.waits if region.program and cuda else ()
    parts["idle: waiting"] = min(idle_s, sum(wait.idle_s for wait in waits))
    idle_s -= parts["idle: waiting"]
    occupied = region.program.occupied if region.program and cuda else {}
    parts["idle: between kernels"] = min(idle_s, occupied.get("idle_between", 0.0))
    parts["idle: launch or host"] = idle_s - parts["idle: between kernels"]
    return parts


def _exposed_s(region: Record, step_s: float) -> float:
    """Return the seconds of a plain step in which the host waits for a collective on a CPU."""
    traced = region.times.get("traced")
    if region.program is None or traced is None or traced.median_s <= 0:
        return 0.0
    exposed_s = region.program.occupied.get("exposed", 0.0)
    return exposed_s * min(1.0, step_s / traced.median_s)


def _hfu(region: Record, header: Header) -> float | None:
    if region.work is None or region.samples is None:
        return None
    placed = _placed(replace(region, cost=region.work), header)
    return placed.mfu_data_sheet if placed else None
