"""Make records from the passes over a region: one of the region, and one of each operator.

Costs and times of an operator are those of all its calls in a step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpuperf.model.aten import Tensor
from gpuperf.model.cost import Work
from gpuperf.model.metrics import sum_up
from gpuperf.model.program import ENDED, Chain, ObservedCall, Operator, PassResult, Program, Wait
from gpuperf.model.record import Kernel, Memory, Record, Status
from gpuperf.model.samples import Samples
from gpuperf.model.timeline import Timeline
from gpuperf.model.times import TimeName
from gpuperf.model.workload import Case
from gpuperf.profile.attribution import call_groups
from gpuperf.profile.average import StepAverage, kernel_counters, seconds_of, stretches
from gpuperf.profile.breakdown import NO_PASS
from gpuperf.profile.caveats import caveats_of
from gpuperf.profile.communication import communication_of
from gpuperf.profile.devicetime import device_time
from gpuperf.profile.fusion import chains_of
from gpuperf.profile.groups import (
    OperatorGroup,
    OperatorKey,
    add_traced,
    containers,
    grouped,
    visible,
)
from gpuperf.profile.passes import RegionPasses
from gpuperf.profile.plainpass import choose_plain_pass, phases_caveat
from gpuperf.profile.stepcost import scaled, step_cost
from gpuperf.profile.trace.steps import StepWindow, marked, parts_of
from gpuperf.profile.waits import idled_s, launch_to_end, waits_of

MOST_TENSORS = 6  # tensors of an operator that its record lists
SHORT_MEMSET_S = 3e-6  # a memset of a few bytes takes half of that on an H200
COPIED = 0.01  # share of an operator's time: with more in copies, counters of kernels miss bytes
AHEAD = 0.9  # share of steps launched before the device began them: it then waits for no launch
NO_STEPS = "the program ended before this pass: use fewer --steps, or let it run more steps"


def region_records(passes: RegionPasses) -> tuple[Record, ...]:
    """Return the record of the region, then those of its operators, the slowest first."""
    timed = (passes.passed, _launches(passes), passes.cuda)
    passes = replace(passes, passed=choose_plain_pass(*timed), phases=phases_caveat(*timed))
    accounting, light = passes.result("accounting"), passes.result("light")
    calls, steps = (accounting.calls, accounting.steps) if accounting else ((), 1)
    windows = _windows(passes)
    groups = grouped(calls, steps, accounting is not None and accounting.tf32)
    average = StepAverage(len(windows))
    if passes.timeline is not None and windows:
        average = _add_trace(passes, passes.timeline, windows, calls, groups)
    operators = [_operator_record(passes, key, group) for key, group in groups.items()]
    operators.sort(key=lambda record: -(record.samples.median_s if record.samples else 0.0))
    waits = waits_of(
        calls,
        steps,
        passes.timeline,
        windows,
        (passes.light, light.steps) if passes.light and light else None,
    )
    return (_region_record(passes, groups, average, waits), *_numbered(operators))


def _launches(passes: RegionPasses) -> float:
    """Return the mean number of activities of devices in a traced step, those dropped included."""
    traced = passes.result("trace")
    activities = len(passes.timeline.activities) if passes.timeline is not None else 0
    return activities / (traced.steps + len(traced.dropped)) if traced else 0.0


def _windows(passes: RegionPasses) -> list[StepWindow]:
    """Return the complete steps in the trace, less those that the pass dropped."""
    if passes.timeline is None or passes.windows:
        return list(passes.windows)
    windows, traced = marked(passes.timeline, passes.region), passes.result("trace")
    if traced is None:
        return windows
    return [w for i, w in enumerate(windows) if i not in traced.dropped][: traced.steps]


def _add_trace(
    passes: RegionPasses,
    timeline: Timeline,
    windows: Sequence[StepWindow],
    calls: Sequence[ObservedCall],
    groups: dict[OperatorKey, OperatorGroup],
) -> StepAverage:
    """Add times and kernels of the traced steps *windows* to *groups*, those of the accounted
    *calls*, and return what the device did in these steps."""
    observed = frozenset(call.call.name for call in calls)
    names = observed or visible(timeline)
    kernels = passes.result("kernels")
    counters = kernel_counters(timeline, windows, kernels.kernels, passes.device) if kernels else {}
    traced = call_groups(timeline, windows, names, counters)
    add_traced(groups, traced, len(windows), observed or None, containers(timeline, names))
    times = [device_time(timeline, window) for window in stretches(timeline, windows)]
    idle = _idle(passes, timeline, windows) if times and passes.cuda else {}
    return StepAverage(len(windows), times, traced, idle)


def _idle(
    passes: RegionPasses, timeline: Timeline, windows: Sequence[StepWindow]
) -> dict[str, float]:
    """Return bounds of the device's idle seconds in a step.

    `idle_between` are the seconds that the device itself takes from one kernel to the next.
    `idle_most`, known if the device never waited for the host in the plain steps, are the idle
    seconds of a traced step: a trace slows the host, so a plain step idles no longer. A trace has
    no idle time before its first step, so *n* steps have that of *n* − 1. If other work ran between
    the steps, idle time cannot be assigned to steps, and only `idle_between` is known.
    """
    if len(stretches(timeline, windows)) > 1:
        return {"idle_between": idled_s(timeline, windows, between=True) / len(windows)}
    traces = [(timeline, list(windows), len(windows))]
    light = passes.result("light")
    if passes.light and light and (whole := launch_to_end(passes.light)):
        traces.append((passes.light, whole, light.steps))
    lightest, stretch, steps = traces[-1]
    idle = {"idle_between": idled_s(lightest, stretch, between=True) / steps}
    plain = passes.result("plain")
    most = [idled_s(trace, own) / (steps - 1) for trace, own, steps in traces if steps > 1]
    if most and plain and plain.ahead >= AHEAD * plain.steps:
        idle["idle_most"] = min(most)
    return idle


def _numbered(operators: Iterable[Record]) -> Iterator[Record]:
    """Yield *operators*, with a `number` (2, 3, …) in the point of each whose case came before.

    The case of an operator has its name and direction, not its tensors.
    """
    counts: dict[str, int] = {}
    for record in operators:
        count = counts[record.case.id] = counts.get(record.case.id, 0) + 1
        if count > 1:
            case = replace(record.case, point={**record.case.point, "number": count})
            record = replace(record, case=case)
        yield record


def _operator_record(passes: RegionPasses, key: OperatorKey, group: OperatorGroup) -> Record:
    times: dict[TimeName, Samples] = {}
    if group.timed and group.device_s > 0:
        times["busy"] = Samples((group.device_s,))
    if group.timed and group.host_s > 0:
        times["host"] = Samples((group.host_s,))
    primary: TimeName = "busy" if passes.cuda else "host"
    name, _, backward = key
    point = {"pass": "backward" if backward else "forward"}
    tensors = group.call.tensors or group.call.outputs
    work = scaled(group.per_call.work, group.count)
    return Record(
        run=passes.run,
        case=Case(name or "no operator", passes.region, point, source=passes.script),
        contract=passes.contract,
        status="ok",
        fingerprint=passes.fingerprint,
        cost=scaled(group.per_call.cost, group.count),
        work=Work(work.flops, work.bytes),
        times=times,
        primary=primary if primary in times else "",
        kernels=group.kernels,
        counters=_counters(group.kernels),
        kind="operator",
        region=passes.region,
        operator=Operator(
            group.per_call.kind,
            group.count,
            group.per_call.known,
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
    """Return the sum of the counters of *kernels*; nothing if a kernel has none.

    Copies have no counters: if they take over `COPIED` of the time, nothing is returned either.
    """
    whole_s = sum(kernel.time_s or 0.0 for kernel in kernels)
    copied_s = sum(
        kernel.time_s or 0.0
        for kernel in kernels
        if not kernel.computes and (kernel.time_s or 0.0) > SHORT_MEMSET_S * kernel.count
    )
    if copied_s > COPIED * whole_s:
        return {}
    return sum_up(kernel.counters for kernel in kernels if kernel.computes)


def _region_record(
    passes: RegionPasses,
    groups: Mapping[OperatorKey, OperatorGroup],
    average: StepAverage,
    waits: tuple[Wait, ...],
) -> Record:
    plain, accounting = passes.result("plain"), passes.result("accounting")
    moved = passes.result("counters")
    linked = communication_of(passes.timeline, _windows(passes), passes.device)
    occupied = average.occupation()
    if linked.collectives:
        occupied |= linked.seconds
    times: dict[TimeName, Samples] = {}
    if plain is not None and plain.steps_s:
        times["step"] = Samples(plain.steps_s)
        times["wall"] = Samples((plain.wall_s / plain.steps,))
    if occupied:
        times["busy"] = Samples((occupied["busy"],))
        times["traced"] = Samples((occupied["wall"],))
    cost, work = step_cost(groups.values(), accounting is not None, bool(occupied))
    observed = accounting is not None or bool(occupied)
    status: Status = "error" if not times else "ok" if groups or not observed else "no-work"
    reason = passes.error or ("no operator of torch ran in the region" if times else NO_PASS)
    peak_bytes = plain.peak_bytes if plain else None
    return Record(
        run=passes.run,
        case=Case(passes.region, passes.script, {}, source=passes.script),
        contract=passes.contract,
        status=status,
        reason="" if status == "ok" else reason,
        fingerprint=passes.fingerprint,
        cost=cost,
        work=work,
        times=times,
        primary="step" if "step" in times else "traced" if "traced" in times else "",
        memory=Memory(0, peak_bytes=peak_bytes) if peak_bytes is not None else None,
        counters=dict(moved.counters) if moved else {},
        caveats=tuple(caveats_of(passes, groups.values())),
        kind="region",
        region=passes.region,
        program=replace(
            _program(passes, groups, average, waits, occupied), collectives=linked.collectives
        ),
    )


def _program(
    passes: RegionPasses,
    groups: Mapping[OperatorKey, OperatorGroup],
    average: StepAverage,
    waits: tuple[Wait, ...],
    occupied: Mapping[str, float],
) -> Program:
    plain, accounting = passes.result("plain"), passes.result("accounting")
    flops = accounting.flop_counts if accounting else ()
    return Program(
        steps={p.name: p.steps for p in passes.passed if p.steps},
        total=passes.total,
        exit_code=passes.exit_code,
        error=passes.error,
        items=passes.items,
        flop_counter=round(sum(flops) / len(flops)) if flops else None,
        occupied=occupied,
        moved=average.moved(),
        launched=average.launched(),
        waits=waits,
        chains=tuple(_chains(accounting, groups, bool(occupied))),
        missing=tuple(
            f"{p.name}: {NO_STEPS if p.reason == ENDED else p.reason}"
            for p in passes.passed
            if not p.steps
        ),
        parts=_parts(passes, average.steps),
        data_s=plain.data_s / plain.steps if plain else 0.0,
        data_where=plain.data_where if plain else "",
        prompts=passes.prompts,
        first={p.name: p.first for p in passes.passed if p.steps},
        backend=next((p.backend for p in passes.passed if p.backend), ""),
    )


def _chains(
    accounting: PassResult | None, groups: Mapping[OperatorKey, OperatorGroup], traced: bool
) -> Iterator[Chain]:
    """Yield the chains that could be fused, with their count and bytes in a mean step.

    If *traced*, operators that did not run in the trace belong to no chain: the accounting pass
    runs the operators inside compiled code, for which the trace has fused kernels.
    """
    if accounting is None:
        return
    ran: Collection[tuple[str, tuple[tuple[int, ...], ...]]] | None = None
    if traced:
        ran = {(k[0], tuple(s for s, _ in k[1] if s)) for k, g in groups.items() if g.traced}
    for chain in chains_of(accounting.calls, ran):
        yield replace(
            chain,
            count=max(1, round(chain.count / accounting.steps)),
            bytes=round(chain.bytes / accounting.steps),
            fused_bytes=round(chain.fused_bytes / accounting.steps),
        )


def _parts(passes: RegionPasses, steps: int) -> dict[str, float]:
    """Return the seconds of a traced step in each region inside it, by name."""
    timeline = passes.timeline
    if timeline is None or not steps:
        return {}
    parts = parts_of(timeline, passes.region)
    return {name: seconds_of(timeline, windows) / steps for name, windows in parts.items()}
