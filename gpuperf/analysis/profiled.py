"""What did the passes over a region find: one record of the region, and one of each operator?

The accounting pass knows every call of a step with its results, the trace the kernels that each
launched; they are joined by name, shapes and direction. Of a trace alone (an imported one) the cost
of a call is inferred from its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from gpuperf.analysis.accounting import Accounted, account
from gpuperf.analysis.attribution import Occupied, Usage, occupancy_of, usages
from gpuperf.analysis.chains import chains_of
from gpuperf.model.aten import Call, Tensor
from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.program import MARK, Operator, Passed, PassName, Program, Seen, Wait
from gpuperf.model.record import Caveat, Kernel, Memory, Record
from gpuperf.model.samples import Samples
from gpuperf.model.timeline import Timeline
from gpuperf.model.workload import Case

__all__ = ["Told", "region_records"]

MOST_LINES = 3  # of an operator
MOST_SHAPES = 6  # tensors in a name
NO_STEPS = "the program ended before it: give --steps fewer, or the program more rounds"

Key = tuple[str, tuple[tuple[tuple[int, ...], str], ...], bool]


@dataclass(frozen=True)
class Told:
    """A region of a program that ran, and what its passes brought."""

    run: str
    region: str
    script: str
    contract: Contract
    fingerprint: Fingerprint
    passed: tuple[Passed, ...]
    timeline: Timeline | None = None
    total: int = 0
    exit_code: int | None = None
    error: str = ""
    items: float | None = None
    cuda: bool = False

    def of(self, name: PassName) -> Passed | None:
        """What the pass *name* brought, if it took a step."""
        return next((p for p in self.passed if p.name == name and p.steps), None)


@dataclass
class _Group:
    """Calls of one key in a step: from the accounting pass, and from the trace."""

    call: Call
    found: Accounted
    count: float = 0.0
    lines: dict[str, None] = field(default_factory=dict)
    device_s: float = 0.0
    host_s: float = 0.0
    kernels: tuple[Kernel, ...] = ()
    traced: bool = False


def region_records(told: Told) -> tuple[Record, ...]:
    """The record of the region, then those of its operators, by what they take."""
    counted = told.of("accounting")
    seen = counted.seen if counted else ()
    windows = _windows(told.timeline, told.region) if told.timeline else []
    groups = _grouped(seen)
    if told.timeline is not None and windows:
        names = {call.call.name for call in seen}
        _add_traced(groups, usages(told.timeline, windows, names or None), len(windows))
    occupied = [occupancy_of(told.timeline, w) for w in windows] if told.timeline else []
    operators = [_operator(told, key, group) for key, group in groups.items()]
    operators.sort(key=lambda record: -(record.samples.median_s if record.samples else 0.0))
    return (_region(told, groups, occupied, seen), *operators)


def _windows(timeline: Timeline, region: str) -> list[tuple[int, int]]:
    """The steps of *region* on the host, in nanoseconds."""
    marks = timeline.annotations
    return [
        (int(marks.start[i]), int(marks.end[i])) for i in range(len(marks))
        if not marks.on_device[i] and timeline.names[marks.name[i]] == f"{MARK}{region}"
    ]  # fmt: skip


def _key(call: Call, backward: bool) -> Key:
    return call.name, tuple((t.shape, t.dtype) for t in call.tensors), backward


def _grouped(seen: Iterable[Seen]) -> dict[Key, _Group]:
    groups: dict[Key, _Group] = {}
    for one in seen:
        key = _key(one.call, one.backward)
        group = groups.setdefault(key, _Group(one.call, account(one.call)))
        group.count += 1
        if one.where and len(group.lines) < MOST_LINES:
            group.lines[one.where] = None
    return {key: group for key, group in groups.items() if group.found.kind != "view"}


def _add_traced(groups: dict[Key, _Group], found: Sequence[Usage], steps: int) -> None:
    """The times and kernels of *found*, over *steps*, to the groups that they are of."""
    for usage in found:
        key = _key(usage.call, usage.backward)
        if key not in groups:  # a trace may not tell a backward pass
            other = _key(usage.call, not usage.backward)
            key = other if other in groups else key
        if key not in groups:
            accounted = account(usage.call)
            if accounted.kind == "view" and not usage.device_s:
                continue
            groups[key] = _Group(usage.call, accounted, usage.count / steps)
        group = groups[key]
        group.device_s += usage.device_s / steps
        group.host_s += usage.host_s / steps
        group.kernels += tuple(
            replace(
                kernel, count=max(1, round(kernel.count / steps)),
                time_s=None if kernel.time_s is None else kernel.time_s / steps,
            )
            for kernel in usage.kernels
        )  # fmt: skip
        group.traced = True


def _operator(told: Told, key: Key, group: _Group) -> Record:
    times, primary = {}, ""
    if group.traced:
        if group.device_s > 0:
            times["busy"] = Samples((group.device_s,))
        if group.host_s > 0:
            times["host"] = Samples((group.host_s,))
        primary = "busy" if told.cuda else "host"
    name, _, backward = key
    point = {"of": _shapes(group.call), "pass": "backward" if backward else "forward"}
    cost = _times(group.found.cost, group.count)
    work = _times(group.found.work, group.count)
    return Record(
        run=told.run, case=Case(name or "no operator", told.region, point, source=told.script),
        contract=told.contract, status="ok", fingerprint=told.fingerprint,
        cost=cost, work=Work(work.flops, work.bytes),
        times=times, primary=primary if primary in times else "", kernels=group.kernels,
        kind="operator", region=told.region,
        operator=Operator(
            group.found.kind, group.count, group.found.known, backward, group.host_s,
            tuple(group.lines),
        ),
    )  # fmt: skip


def _shapes(call: Call) -> str:
    """`8×768 bf16, 768×768 bf16`."""
    texts = [_shape(tensor) for tensor in call.tensors[:MOST_SHAPES]]
    more = len(call.tensors) - len(texts)
    return ", ".join([*texts, *([f"{more} more"] if more > 0 else [])])


def _shape(tensor: Tensor) -> str:
    return f"{'×'.join(map(str, tensor.shape)) or 'scalar'} {tensor.dtype}"


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
    told: Told, groups: Mapping[Key, _Group], occupied: Sequence[Occupied], seen: Sequence[Seen]
) -> Record:
    plain, counted, moved = (told.of(name) for name in ("plain", "accounting", "counters"))
    times: dict[str, Samples] = {}
    if plain is not None and plain.steps_s:
        times["step"] = Samples(plain.steps_s)
        times["wall"] = Samples((plain.wall_s / plain.steps,))
    if occupied:
        times["busy"] = Samples(tuple(max(one.busy_s, 0.0) for one in occupied))
        times["traced"] = Samples(tuple(one.wall_s for one in occupied))
    cost = _summed(_times(g.found.cost, g.count) for g in groups.values())
    work = _summed(_times(g.found.work, g.count) for g in groups.values())
    peak = plain.peak_bytes if plain else None
    return Record(
        run=told.run, case=Case(told.region, told.script, {}, source=told.script),
        contract=told.contract, status="ok" if times else "error",
        reason="" if times else told.error or "no pass took a step",
        fingerprint=told.fingerprint, cost=cost, work=Work(work.flops, work.bytes), times=times,
        primary="step" if "step" in times else "traced" if "traced" in times else "",
        memory=Memory(0, peak_bytes=peak) if peak is not None else None,
        counters=dict(moved.counters) if moved else {},
        caveats=tuple(_doubts(told, groups)), kind="region", region=told.region,
        program=Program(
            steps={p.name: p.steps for p in told.passed if p.steps},
            total=told.total, exit_code=told.exit_code, error=told.error, items=told.items,
            flop_counter=counted.flop_counter if counted else None,
            occupied=_mean(one.seconds for one in occupied),
            moved=_mean(one.bytes for one in occupied),
            launched=_mean(one.counts for one in occupied),
            waits=_waits(seen), chains=chains_of(seen),
            missing=tuple(_missing(told)),
        ),
    )  # fmt: skip


def _mean(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Of a step."""
    rows = list(each)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: fmean(row.get(name, 0.0) for row in rows) for name in names}


def _waits(seen: Iterable[Seen]) -> tuple[Wait, ...]:
    counts: dict[tuple[str, str], int] = {}
    for one in seen:
        if one.waits:
            counts[one.waits, one.where] = counts.get((one.waits, one.where), 0) + 1
    return tuple(Wait(what, where, count) for (what, where), count in counts.items())


def _missing(told: Told) -> Iterable[str]:
    for passed in told.passed:
        if not passed.steps:
            why = NO_STEPS if passed.reason == "the program ended" else passed.reason
            yield f"{passed.name}: {why}"


def _doubts(told: Told, groups: Mapping[Key, _Group]) -> Iterable[Caveat]:
    unknown = [g for g in groups.values() if not g.found.known]
    total = sum(g.device_s or g.host_s for g in groups.values())
    share = sum(g.device_s or g.host_s for g in unknown) / total if total else 0.0
    if unknown and share > 0.005:
        names = ", ".join(dict.fromkeys(g.call.name or "no operator" for g in unknown[:4]))
        yield Caveat(
            "unknown-operators",
            f"of {share * 100:.1f} % of the time nobody knows the FLOPs: {names}",
            "gpuperf.register_cost tells them",
        )
    for passed in told.passed:
        if passed.steps and passed.reason:
            yield Caveat("incomplete", f"{passed.name}: {passed.reason}")
