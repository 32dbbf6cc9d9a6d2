"""What did the passes over a region find: one record of the region, and one of each operator?

Costs and times of an operator are those of all its calls in a step.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuperf.model.aten import Tensor
from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.metrics import sum_up
from gpuperf.model.program import (
    ENDED,
    Chain,
    ObservedCall,
    Operator,
    PassName,
    PassResult,
    Program,
    Wait,
)
from gpuperf.model.record import Caveat, Kernel, Memory, Record, Status
from gpuperf.model.samples import Samples
from gpuperf.model.timeline import Timeline
from gpuperf.model.times import TimeName
from gpuperf.model.workload import Case
from gpuperf.profile.attribution import CallGroup, call_groups
from gpuperf.profile.average import StepAverage, in_step, seconds_of, stretches
from gpuperf.profile.breakdown import NO_PASS
from gpuperf.profile.devicetime import DeviceTime, device_time
from gpuperf.profile.fusion import CallKey, chains_of
from gpuperf.profile.groups import (
    OperatorGroup,
    OperatorKey,
    add_traced,
    containers,
    grouped,
    visible,
)
from gpuperf.profile.plainpass import choose_plain_pass, phases_caveat, scatter_caveat
from gpuperf.profile.trace.steps import StepWindow, marked, parts_of
from gpuperf.profile.waits import idled_s, waits_of, whole_of

MOST_TENSORS = 6  # of an operator, by their shapes
DISAGREE = 0.1  # of torch's own count of FLOPs
UNEVEN = 0.01  # what the FLOPs of steps may differ without a word
ELSEWHERE = 0.05  # of the time, that only the trace knows
FEW_BYTES_S = 3e-6  # a memset of some takes half of that on an H200
COPIED = 0.01  # of an operator's time: beyond that its kernels are not all that moves bytes
AHEAD = 0.9  # of the steps: from here on the device never waits for the host
NO_STEPS = "the program ended before it: give --steps fewer, or the program more rounds"


@dataclass(frozen=True)
class RegionPasses:
    """A region of a program that ran, and what its passes brought."""

    run: str
    region: str
    script: str
    contract: Contract
    fingerprint: Fingerprint
    passed: tuple[PassResult, ...]
    timeline: Timeline | None = None
    windows: tuple[StepWindow, ...] = ()  # of the steps in the trace, where they are not marked
    total: int = 0
    exit_code: int | None = None
    error: str = ""
    items: float | None = None
    cuda: bool = False
    light: Timeline | None = None  # of the light pass
    device: int | None = None  # by whose clock the steps were timed
    phases: Caveat | None = None  # of the steps of its plain pass

    def of(self, name: PassName) -> PassResult | None:
        """What the pass *name* brought, if it took a step."""
        return next((p for p in self.passed if p.name == name and p.steps), None)


def region_records(told: RegionPasses) -> tuple[Record, ...]:
    """The record of the region, then those of its operators, by what they take."""
    timed = (told.passed, _launches(told), told.cuda)
    told = replace(told, passed=choose_plain_pass(*timed), phases=phases_caveat(*timed))
    counted, traced = told.of("accounting"), told.of("trace")
    seen = counted.calls if counted else ()
    windows = list(told.windows)
    if told.timeline is not None and not windows:
        windows = marked(told.timeline, told.region)
        if traced:  # without those that are no steps, and one that began last and did not end
            kept = [w for i, w in enumerate(windows) if i not in traced.dropped]
            windows = kept[: traced.steps]
    groups = grouped(seen, counted.steps if counted else 1, counted is not None and counted.tf32)
    found: tuple[CallGroup, ...] = ()
    occupied: list[DeviceTime] = []
    if told.timeline is not None and windows:
        names = frozenset(one.call.name for one in seen)
        shown = names or visible(told.timeline)
        each = told.of("kernels")
        own = in_step(told.timeline, windows, each.kernels, told.device) if each else {}
        found = call_groups(told.timeline, windows, shown, own)
        inside = containers(told.timeline, shown)
        add_traced(groups, found, len(windows), names or None, inside)
        occupied = [device_time(told.timeline, w) for w in stretches(told.timeline, windows)]
    idle = _idle(told, windows) if occupied else {}
    used = StepAverage(len(windows), occupied, found, idle)
    operators = [_operator(told, key, group) for key, group in groups.items()]
    operators.sort(key=lambda record: -(record.samples.median_s if record.samples else 0.0))
    operators = _told_apart(operators)
    light = told.of("light")
    waits = waits_of(
        seen,
        counted.steps if counted else 1,
        told.timeline,
        windows,
        (told.light, light.steps) if told.light and light else None,
    )
    return (_region(told, groups, used, seen, waits), *operators)


def _launches(told: RegionPasses) -> float:
    """What a traced step starts on devices."""
    traced = told.of("trace")
    activities = len(told.timeline.activities) if told.timeline is not None else 0
    return activities / traced.steps if traced else 0.0


def _idle(told: RegionPasses, windows: Sequence[StepWindow]) -> dict[str, float]:
    """Of the seconds of a step that the device idles, what it takes itself from one kernel to the
    next; and, if it never waited for the host in the plain steps, how many they are at the most: no
    more than under a trace, which slows the host.

    Before the first step a trace has no idle time, so that it has as many as it has steps but one.
    Where other work lies between the steps, nobody knows whose idle time it is.
    """
    if told.timeline is None or not told.cuda:
        return {}
    if len(stretches(told.timeline, windows)) > 1:
        return {"idle_between": idled_s(told.timeline, windows, between=True) / len(windows)}
    seen = [(told.timeline, list(windows), len(windows))]
    light, whole = told.of("light"), whole_of(told.light) if told.light else []
    if told.light and light and whole:
        seen.append((told.light, whole, light.steps))
    timeline, own, steps = seen[-1]  # which slows the host less
    found = {"idle_between": idled_s(timeline, own, between=True) / steps}
    plain = told.of("plain")
    most = [idled_s(timeline, own) / (steps - 1) for timeline, own, steps in seen if steps > 1]
    if most and plain and plain.ahead >= AHEAD * plain.steps:
        found["idle_most"] = min(most)
    return found


def _told_apart(operators: Iterable[Record]) -> list[Record]:
    """Those of one name and direction with a number: their tensors are not part of their case."""
    met: dict[str, int] = {}
    found = []
    for record in operators:
        count = met[record.case.id] = met.get(record.case.id, 0) + 1
        if count > 1:
            case = replace(record.case, point={**record.case.point, "number": count})
            record = replace(record, case=case)
        found.append(record)
    return found


def _operator(told: RegionPasses, key: OperatorKey, group: OperatorGroup) -> Record:
    times: dict[TimeName, Samples] = {}
    primary: TimeName | Literal[""] = ""
    if group.timed:
        if group.device_s > 0:
            times["busy"] = Samples((group.device_s,))
        if group.host_s > 0:
            times["host"] = Samples((group.host_s,))
        primary = "busy" if told.cuda else "host"
    name, _, backward = key
    point = {"pass": "backward" if backward else "forward"}
    tensors = group.call.tensors or group.call.outputs
    cost = _times(group.found.cost, group.count)
    work = _times(group.found.work, group.count)
    return Record(
        run=told.run,
        case=Case(name or "no operator", told.region, point, source=told.script),
        contract=told.contract,
        status="ok",
        fingerprint=told.fingerprint,
        cost=cost,
        work=Work(work.flops, work.bytes),
        times=times,
        primary=primary if primary in times else "",
        kernels=group.kernels,
        counters=_counters(group.kernels),
        kind="operator",
        region=told.region,
        operator=Operator(
            group.found.kind,
            group.count,
            group.found.known,
            backward,
            group.host_s,
            tuple(group.lines),
            group.graph,
            tuple(Tensor(tensor.shape, tensor.dtype) for tensor in tensors[:MOST_TENSORS]),
            max(0, len(tensors) - MOST_TENSORS),
            bool(tensors) and not group.call.tensors,
        ),
    )


def _counters(kernels: Sequence[Kernel]) -> dict[str, float]:
    """Those of all *kernels*, if each has any, and copies, which nobody counts, hardly matter: as
    those that set a few bytes to zero do not."""
    whole_s = sum(kernel.time_s or 0.0 for kernel in kernels)
    counted = [kernel for kernel in kernels if kernel.computes]
    moving = [k for k in kernels if k not in counted and (k.time_s or 0.0) > FEW_BYTES_S * k.count]
    if sum(kernel.time_s or 0.0 for kernel in moving) > COPIED * whole_s:
        return {}
    return sum_up(kernel.counters for kernel in counted)


def _times(cost: Cost, count: float) -> Cost:
    """*cost* of *count* calls."""
    return Cost(
        tuple(replace(f, count=round(f.count * count)) for f in cost.flops),
        tuple(
            replace(b, read=round(b.read * count), written=round(b.written * count))
            for b in cost.bytes
        ),
    )


def _summed(costs: Iterable[Cost]) -> Cost:
    """All of them, by kind and dtype, and by channel."""
    flops: dict[Flops, int] = {}
    moved: dict[str, list[int]] = {}
    for cost in costs:
        for f in cost.flops:
            key = replace(f, count=0)
            flops[key] = flops.get(key, 0) + f.count
        for b in cost.bytes:
            both = moved.setdefault(b.channel, [0, 0])
            both[0] += b.read
            both[1] += b.written
    return Cost(
        tuple(replace(f, count=count) for f, count in flops.items()),
        tuple(Bytes(read, written, channel) for channel, (read, written) in moved.items()),  # type: ignore[arg-type]
    )


def _region(
    told: RegionPasses,
    groups: Mapping[OperatorKey, OperatorGroup],
    used: StepAverage,
    seen: Sequence[ObservedCall],
    waits: tuple[Wait, ...],
) -> Record:
    plain, counted, moved = (told.of(name) for name in ("plain", "accounting", "counters"))
    times: dict[TimeName, Samples] = {}
    if plain is not None and plain.steps_s:
        times["step"] = Samples(plain.steps_s)
        times["wall"] = Samples((plain.wall_s / plain.steps,))
    occupied = used.occupation()
    if occupied:
        times["busy"] = Samples((occupied["busy"],))
        times["traced"] = Samples((occupied["wall"],))
    # What the accounting pass saw is all that a step computes: what only the trace shows is the
    # same under other names, or of other steps. But what moves is what ran: compiled, it is less.
    steps = counted.steps if counted else 1
    counts = [(g, g.seen if counted else g.count) for g in groups.values()]
    moves = [(g, g.count if g.timed else 0.0) for g in groups.values()] if occupied else counts
    cost = _summed(_times(g.found.cost, n - g.again) for g, n in counts)
    work = _summed(_times(g.found.work, n) for g, n in counts)
    cost = replace(cost, bytes=_summed(_times(g.found.cost, n) for g, n in moves).bytes)
    work = replace(work, bytes=_summed(_times(g.found.work, n) for g, n in moves).bytes)
    peak = plain.peak_bytes if plain else None
    ran = None
    if occupied:  # under the accounting, what is compiled runs as its parts: they ran nowhere else
        ran = {(k[0], tuple(s for s, _ in k[1] if s)) for k, g in groups.items() if g.traced}
    looked = counted is not None or bool(occupied)
    status: Status = "error" if not times else "ok" if groups or not looked else "no-work"
    reason = told.error or ("no operator of torch ran in it" if times else NO_PASS)
    return Record(
        run=told.run,
        case=Case(told.region, told.script, {}, source=told.script),
        contract=told.contract,
        status=status,
        reason="" if status == "ok" else reason,
        fingerprint=told.fingerprint,
        cost=cost,
        work=Work(work.flops, work.bytes),
        times=times,
        primary="step" if "step" in times else "traced" if "traced" in times else "",
        memory=Memory(0, peak_bytes=peak) if peak is not None else None,
        counters=dict(moved.counters) if moved else {},
        caveats=tuple(_doubts(told, groups)),
        kind="region",
        region=told.region,
        program=Program(
            steps={p.name: p.steps for p in told.passed if p.steps},
            total=told.total,
            exit_code=told.exit_code,
            error=told.error,
            items=told.items,
            flop_counter=_flop_counter(counted),
            occupied=occupied,
            moved=used.moved(),
            launched=used.launched(),
            waits=waits,
            chains=_chains(seen, steps, ran),
            missing=tuple(_missing(told)),
            parts=_parts(told, used.steps),
            data_s=plain.data_s / plain.steps if plain else 0.0,
            data_where=plain.data_where if plain else "",
        ),
    )


def _flop_counter(counted: PassResult | None) -> int | None:
    """Torch's own count of a step: the mean of those that were counted."""
    counts = counted.flop_counts if counted else ()
    return round(sum(counts) / len(counts)) if counts else None


def _chains(
    seen: Sequence[ObservedCall], steps: int, ran: Container[CallKey] | None
) -> tuple[Chain, ...]:
    """Those of a step."""
    return tuple(
        replace(
            chain,
            count=max(1, round(chain.count / steps)),
            bytes=round(chain.bytes / steps),
            fused_bytes=round(chain.fused_bytes / steps),
        )
        for chain in chains_of(seen, ran)
    )


def _parts(told: RegionPasses, steps: int) -> dict[str, float]:
    """Seconds of a step by the regions inside it."""
    if told.timeline is None or not steps:
        return {}
    found = parts_of(told.timeline, told.region)
    return {name: seconds_of(told.timeline, own) / steps for name, own in found.items()}


def _missing(told: RegionPasses) -> Iterable[str]:
    for passed in told.passed:
        if not passed.steps:
            why = NO_STEPS if passed.reason == ENDED else passed.reason
            yield f"{passed.name}: {why}"


def _doubts(told: RegionPasses, groups: Mapping[OperatorKey, OperatorGroup]) -> Iterable[Caveat]:
    accounted = told.of("accounting") is not None

    def seconds(those: Iterable[OperatorGroup]) -> float:
        return sum(g.device_s if told.cuda else g.host_s for g in those)

    # What is compiled was accounted for as its parts.
    unknown = [g for g in groups.values() if not g.found.known and not (g.graph and accounted)]
    share = seconds(unknown) / (seconds(groups.values()) or 1.0)
    if unknown and share > 0.005:
        names = ", ".join(dict.fromkeys(g.call.name or "no operator" for g in unknown[:4]))
        yield Caveat(
            "unknown-operators",
            f"of {share * 100:.1f} % of the time nobody knows the FLOPs: {names}",
            "gpuperf.register_cost tells what an operator of your own costs",
        )
    alone = seconds(
        g
        for g in groups.values()
        if accounted
        and not g.seen
        and g.call.name
        and (g.graph or (g.found.known and g.found.kind != "view"))
    )
    share = alone / (seconds(groups.values()) or 1.0)
    if share > ELSEWHERE and told.timeline is not None:
        yield Caveat(
            "other-operators",
            f"{share * 100:.1f} % of the time is of operators, or shapes of them, that the steps "
            "under the accounting did not have: what is compiled is accounted for as its parts, "
            "and where steps differ, so do their FLOPs",
            "totals are those of the accounted steps, rows those of the traced ones",
        )
    yield from _counts(told, groups)
    plain = told.of("plain")
    uncertain = scatter_caveat(plain) if plain else None
    yield from (doubt for doubt in (told.phases, uncertain) if doubt is not None)
    each = told.of("kernels")
    counted = any(k.counters for g in groups.values() for k in g.kernels)
    if each and told.timeline is not None and not counted:
        yield Caveat(
            "incomplete",
            f"kernels: {len(each.kernels)} were counted, and the traced steps have not all as "
            "many and the same: whose counters they are is unknown",
            "perhaps a CUDA graph, which is counted as one kernel, or steps that differ",
        )
    used = told.timeline.active_devices if told.timeline is not None else ()
    if told.device is not None and used and used != (told.device,):
        yield Caveat(
            "other-devices",
            f"work ran on GPU {', '.join(map(str, used))}, while times, memory and counters are of "
            f"GPU {told.device}",
            "torch.cuda.set_device, or one GPU a process, has them agree",
        )
    for passed in told.passed:
        if passed.steps and passed.reason:
            yield Caveat("incomplete", f"{passed.name}: {passed.reason}")


def _counts(told: RegionPasses, groups: Mapping[OperatorKey, OperatorGroup]) -> Iterable[Caveat]:
    """Where steps differ in their FLOPs, or we from torch's own counter."""
    counted = told.of("accounting")
    counts = counted.flop_counts if counted else ()
    if not counts or not max(counts):
        return
    mean = sum(counts) / len(counts)
    if max(counts) - min(counts) > UNEVEN * mean:
        yield Caveat(
            "uneven-steps",
            f"steps differ: by torch's own counter {min(counts) / 1e9:.4g} to "
            f"{max(counts) / 1e9:.4g} GFLOP in {len(counts)} of them",
            "rates are of a mean step: of what is done now and then they know nothing",
        )
    ours = sum(
        f.count * g.seen for g in groups.values() for f in g.found.work.flops if f.kind == "matmul"
    )
    if abs(ours / mean - 1) > DISAGREE:
        yield Caveat(
            "flops-disagree",
            f"matmuls and attention come to {ours / 1e9:.4g} GFLOP here, and to "
            f"{mean / 1e9:.4g} by torch's own counter",
            "it counts a causal mask as none, and no operator of your own",
        )
