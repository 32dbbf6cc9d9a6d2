"""What did the passes over a region find: one record of the region, and one of each operator?

Costs and times of an operator are those of all its calls in a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuperf.analysis.attribution import Usage, usages
from gpuperf.analysis.chains import chains_of
from gpuperf.analysis.joined import Group, Key, add_traced, containers, grouped
from gpuperf.analysis.occupied import Occupied, occupancy_of
from gpuperf.analysis.used import Used, stretches
from gpuperf.analysis.waiting import waits_of
from gpuperf.analysis.windows import Window, marked
from gpuperf.model.aten import Call, Tensor
from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.program import Operator, Passed, PassName, Program, Seen, Wait
from gpuperf.model.record import Caveat, Memory, Record, Status
from gpuperf.model.samples import Samples
from gpuperf.model.timeline import Timeline
from gpuperf.model.workload import Case

__all__ = ["Told", "region_records"]

MOST_SHAPES = 6  # tensors in a name
DISAGREE = 0.1  # of torch's own count of FLOPs
NO_STEPS = "the program ended before it: give --steps fewer, or the program more rounds"


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
    windows: tuple[Window, ...] = ()  # of the steps in the trace, where they are not marked
    total: int = 0
    exit_code: int | None = None
    error: str = ""
    items: float | None = None
    cuda: bool = False

    def of(self, name: PassName) -> Passed | None:
        """What the pass *name* brought, if it took a step."""
        return next((p for p in self.passed if p.name == name and p.steps), None)


def region_records(told: Told) -> tuple[Record, ...]:
    """The record of the region, then those of its operators, by what they take."""
    counted = told.of("accounting")
    seen = counted.seen if counted else ()
    windows = list(told.windows)
    if told.timeline is not None and not windows:
        windows = marked(told.timeline, told.region)
    groups = grouped(seen, counted is not None and counted.tf32)
    found: tuple[Usage, ...] = ()
    occupied: list[Occupied] = []
    if told.timeline is not None and windows:
        names = {call.call.name for call in seen}
        found = usages(told.timeline, windows, names or None)
        inside = frozenset(names) or None
        add_traced(groups, found, len(windows), inside, containers(told.timeline))
        occupied = [occupancy_of(told.timeline, w) for w in stretches(told.timeline, windows)]
    used = Used(len(windows), occupied, found)
    operators = [_operator(told, key, group) for key, group in groups.items()]
    operators.sort(key=lambda record: -(record.samples.median_s if record.samples else 0.0))
    operators = _told_apart(operators)
    waits = waits_of(seen, told.timeline, windows)
    return (_region(told, groups, used, seen, waits), *operators)


def _told_apart(operators: Iterable[Record]) -> list[Record]:
    """Those of one name with a number: of many tensors a name shows a few."""
    met: dict[str, int] = {}
    found = []
    for record in operators:
        count = met[record.case.id] = met.get(record.case.id, 0) + 1
        if count > 1:
            case = replace(record.case, point={**record.case.point, "number": count})
            record = replace(record, case=case)
        found.append(record)
    return found


def _operator(told: Told, key: Key, group: Group) -> Record:
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
    """`8×768 bf16, 768×768 bf16`; of a call without tensors what it makes, behind an arrow."""
    tensors = call.tensors or call.outputs
    texts = [_shape(tensor) for tensor in tensors[:MOST_SHAPES]]
    more = len(tensors) - len(texts)
    if texts and not call.tensors:
        texts[0] = f"→ {texts[0]}"
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
    told: Told, groups: Mapping[Key, Group], used: Used, seen: Sequence[Seen],
    waits: tuple[Wait, ...],
) -> Record:  # fmt: skip
    plain, counted, moved = (told.of(name) for name in ("plain", "accounting", "counters"))
    times: dict[str, Samples] = {}
    if plain is not None and plain.steps_s:
        times["step"] = Samples(plain.steps_s)
        times["wall"] = Samples((plain.wall_s / plain.steps,))
    occupied = used.occupation()
    if occupied:
        times["busy"] = Samples((occupied["busy"],))
        times["traced"] = Samples((occupied["wall"],))
    cost = _summed(_times(g.found.cost, g.count) for g in groups.values())
    work = _summed(_times(g.found.work, g.count) for g in groups.values())
    peak = plain.peak_bytes if plain else None
    ran = None
    if told.timeline is not None:
        ran = {(k[0], tuple(s for s, _ in k[1] if s)) for k, g in groups.items() if g.traced}
    status: Status = "error" if not times else "ok" if groups else "no-work"
    reason = told.error or ("no operator of torch ran in it" if times else "no pass took a step")
    return Record(
        run=told.run, case=Case(told.region, told.script, {}, source=told.script),
        contract=told.contract, status=status, reason="" if status == "ok" else reason,
        fingerprint=told.fingerprint, cost=cost, work=Work(work.flops, work.bytes), times=times,
        primary="step" if "step" in times else "traced" if "traced" in times else "",
        memory=Memory(0, peak_bytes=peak) if peak is not None else None,
        counters=dict(moved.counters) if moved else {},
        caveats=tuple(_doubts(told, groups)), kind="region", region=told.region,
        program=Program(
            steps={p.name: p.steps for p in told.passed if p.steps},
            total=told.total, exit_code=told.exit_code, error=told.error, items=told.items,
            flop_counter=counted.flop_counter if counted else None,
            occupied=occupied, moved=used.moved(), launched=used.launched(),
            waits=waits, chains=chains_of(seen, ran),
            missing=tuple(_missing(told)),
        ),
    )  # fmt: skip


def _missing(told: Told) -> Iterable[str]:
    for passed in told.passed:
        if not passed.steps:
            why = NO_STEPS if passed.reason == "the program ended" else passed.reason
            yield f"{passed.name}: {why}"


def _doubts(told: Told, groups: Mapping[Key, Group]) -> Iterable[Caveat]:
    def seconds(those: Iterable[Group]) -> float:
        return sum(g.device_s if told.cuda else g.host_s for g in those)

    unknown = [g for g in groups.values() if not g.found.known]
    share = seconds(unknown) / (seconds(groups.values()) or 1.0)
    if unknown and share > 0.005:
        names = ", ".join(dict.fromkeys(g.call.name or "no operator" for g in unknown[:4]))
        yield Caveat(
            "unknown-operators",
            f"of {share * 100:.1f} % of the time nobody knows the FLOPs: {names}",
            "gpuperf.register_cost tells what an operator of your own costs",
        )
    counted = told.of("accounting")
    ours = sum(f.count * g.count for g in groups.values() for f in g.found.cost.flops
               if f.kind == "matmul")  # fmt: skip
    theirs = counted.flop_counter if counted else None
    if theirs and abs(ours / theirs - 1) > DISAGREE:
        yield Caveat(
            "flops-disagree",
            f"matmuls and attention come to {ours / 1e9:.4g} GFLOP here, and to "
            f"{theirs / 1e9:.4g} by torch's own counter: steps that differ and compiled ones may "
            "count twice, and every rate and MFU with them",
            "believe neither before you know which",
        )
    for passed in told.passed:
        if passed.steps and passed.reason:
            yield Caveat("incomplete", f"{passed.name}: {passed.reason}")
