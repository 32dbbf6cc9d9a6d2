"""What did the passes over a region find: one record of the region, and one of each operator?

The accounting pass knows every call of a step with its results, the trace the kernels that each
launched; they are joined by name, shapes and direction. Of a trace alone (an imported one) the cost
of a call is inferred from its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from gpuperf.analysis.accounting import Accounted, Kind, account
from gpuperf.analysis.attribution import Usage, chains, usages
from gpuperf.analysis.chains import chains_of
from gpuperf.analysis.occupied import Occupied, Share, occupancy_of
from gpuperf.analysis.windows import Window, marked
from gpuperf.model.aten import Call, Tensor
from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.cost import Bytes, Cost, Flops, Work
from gpuperf.model.program import Operator, Passed, PassName, Program, Seen, Wait
from gpuperf.model.record import Caveat, Kernel, Memory, Record, Status
from gpuperf.model.samples import Samples
from gpuperf.model.timeline import Timeline
from gpuperf.model.workload import Case

__all__ = ["Told", "region_records"]

MOST_LINES = 3  # of an operator
MOST_SHAPES = 6  # tensors in a name
APART = 0.01  # of the time: steps with smaller gaps follow each other
NOTHING = Accounted(Cost(), Work(), "view", True)
WRAPPERS: Key = ("wrappers, autograd and Python", (), False)
# Those whose parts are of other kinds.
COMPOSED = {"aten::cross_entropy_loss", "aten::nll_loss", "aten::nll_loss_nd", "aten::dropout"}
STARTS = {"copy": "Memcpy", "set": "Memset"}  # of the names of what is no kernel
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
    windows: tuple[Window, ...] = ()  # of the steps in the trace, where they are not marked
    total: int = 0
    exit_code: int | None = None
    error: str = ""
    items: float | None = None
    cuda: bool = False

    def of(self, name: PassName) -> Passed | None:
        """What the pass *name* brought, if it took a step."""
        return next((p for p in self.passed if p.name == name and p.steps), None)


@dataclass(frozen=True)
class _Used:
    """What a trace says of *steps* steps."""

    steps: int
    occupied: Sequence[Occupied] = ()
    usages: Sequence[Usage] = ()

    def each(self, seconds: Callable[[Occupied], float]) -> float:
        """Of a step."""
        return sum(map(seconds, self.occupied)) / self.steps

    def occupation(self) -> dict[str, float]:
        """Seconds of a step by what the device did."""
        if not self.occupied:
            return {}
        found = {
            "wall": self.each(lambda o: o.wall_s), "busy": self.each(lambda o: o.busy_s),
            "kernels": self.each(lambda o: o.kernels.seconds),
            "communication": self.each(lambda o: o.communication.seconds),
            "sets": self.each(lambda o: o.sets.seconds),
            "idle_queued": self.each(lambda o: o.queued_s),
            "idle_sync": self.each(lambda o: o.sync_s), "idle_host": self.each(lambda o: o.host_s),
            "idle_other": self.each(lambda o: o.other_s),
        }  # fmt: skip
        for name in dict.fromkeys(name for one in self.occupied for name in one.copies):
            found[f"copy {name}"] = self.each(lambda o, n=name: _copied(o, n).seconds)  # type: ignore[misc]
        return found

    def moved(self) -> dict[str, float]:
        """Bytes of copies in a step by direction."""
        names = dict.fromkeys(name for one in self.occupied for name in one.copies)
        return {
            f"copy {name}": self.each(lambda o, n=name: float(_copied(o, n).bytes))  # type: ignore[misc]
            for name in names
        }

    def launched(self) -> dict[str, float]:
        """Kernels, copies and sets of a step."""
        found: dict[str, float] = {}
        for kernel in (kernel for usage in self.usages for kernel in usage.kernels):
            kinds = (kind for kind, start in STARTS.items() if kernel.name.startswith(start))
            kind = next(kinds, "kernel")
            found[kind] = found.get(kind, 0.0) + kernel.count / self.steps
        return found


def _copied(one: Occupied, name: str) -> Share:
    return one.copies.get(name, Share())


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
    windows = list(told.windows)
    if told.timeline is not None and not windows:
        windows = marked(told.timeline, told.region)
    groups = _grouped(seen, counted is not None and counted.tf32)
    found: tuple[Usage, ...] = ()
    occupied: list[Occupied] = []
    if told.timeline is not None and windows:
        names = {call.call.name for call in seen}
        found = usages(told.timeline, windows, names or None)
        inside = frozenset(names) or None
        _add_traced(groups, found, len(windows), inside, _containers(told.timeline))
        occupied = [occupancy_of(told.timeline, w) for w in _stretches(told.timeline, windows)]
    used = _Used(len(windows), occupied, found)
    operators = [_operator(told, key, group) for key, group in groups.items()]
    operators.sort(key=lambda record: -(record.samples.median_s if record.samples else 0.0))
    operators = _told_apart(operators)
    return (_region(told, groups, used, seen), *operators)


def _accounted(one: Seen, tf32: bool) -> Accounted:
    """By what the program says of its own operator, or by ours."""
    if one.cost is None:
        return account(one.call, tf32)
    kinds = {flops.kind for flops in one.cost.flops}
    kind: Kind = "matmul" if "matmul" in kinds else "elementwise"
    return Accounted(one.cost, Work(one.cost.flops, one.cost.bytes), kind, True)


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


def _stretches(timeline: Timeline, windows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where the device worked on the steps: it runs behind the host, so that steps without gaps are
    one stretch, which ends when their last work does."""
    ordered = sorted(windows)
    first, last = ordered[0][0], ordered[-1][1]
    apart = sum(b[0] - a[1] for a, b in pairwise(ordered))
    if apart > APART * (last - first):
        return ordered
    activities, runtime = timeline.activities, timeline.runtime
    if len(activities) and len(runtime):
        by = activities.runtime
        launched = (by >= 0) & (runtime.start[by] >= first) & (runtime.start[by] < last)
        if launched.any():
            last = max(last, int(activities.end[launched].max()))
    return [(first, last)]


def _key(call: Call, backward: bool) -> Key:
    return call.name, tuple((t.shape, t.dtype) for t in call.tensors), backward


def _grouped(seen: Iterable[Seen], tf32: bool) -> dict[Key, _Group]:
    groups: dict[Key, _Group] = {}
    for one in seen:
        key = _key(one.call, one.backward)
        if key not in groups:
            groups[key] = _Group(one.call, _accounted(one, tf32))
        group = groups[key]
        group.count += 1
        if one.where and len(group.lines) < MOST_LINES:
            group.lines[one.where] = None
    return {key: group for key, group in groups.items() if group.found.kind != "view"}


def _by_kernel(usage: Usage) -> Iterable[Usage]:
    """What no operator launched (a kernel of Triton, called by hand), by the names of kernels."""
    if usage.call.name or not usage.kernels:
        yield usage
        return
    for kernel in usage.kernels:
        yield replace(
            usage, call=Call(kernel.name), count=kernel.count, kernels=(kernel,),
            device_s=kernel.time_s or 0.0, host_s=0.0,
        )  # fmt: skip


def _loose(call: Call) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """What a trace and a dispatch mode agree on: a number is a tensor to the one and none to the
    other, and of lists of tensors a trace has no dtypes."""
    return call.name, tuple(t.shape for t in call.tensors if t.shape)


def _matching(
    groups: Mapping[Key, _Group], alike: Mapping[object, Sequence[Key]], usage: Usage
) -> Key:
    """The key of the group that *usage* is of; its own where there is none."""
    own = _key(usage.call, usage.backward)
    if own in groups:
        return own
    near = alike.get(_loose(usage.call), ())
    if not near and len(alike.get(usage.call.name, ())) == 1:
        near = alike[usage.call.name]
    return next((key for key in near if key[2] == usage.backward), near[0] if near else own)


def _containers(timeline: Timeline) -> set[Call]:
    """Calls of operators that leave their work to others of their kind (`aten::linear`, to
    `aten::addmm`): what these do must not count twice."""
    kinds = [account(call).kind for call in timeline.calls]
    alike = ["indexing" if kind == "embedding" else kind for kind in kinds]
    parents, calls = chains(timeline).parent.tolist(), timeline.operators.call.tolist()
    found = {i for i, call in enumerate(timeline.calls) if call.name in COMPOSED}
    for i, parent in enumerate(parents):
        while parent >= 0 and calls[parent] not in found:
            if alike[calls[parent]] == alike[calls[i]] and calls[parent] != calls[i]:
                found.add(calls[parent])
            parent = parents[parent]
    return {timeline.calls[i] for i in found}


def _add_traced(
    groups: dict[Key, _Group], found: Sequence[Usage], steps: int, seen: Container[str] | None,
    containers: Container[Call],
) -> None:  # fmt: skip
    """The times and kernels of *found*, over *steps*, to the groups that they are of.

    *seen* are the names that the accounting pass saw: what it did not see, and launched nothing,
    is a wrapper or autograd's own. *containers* have no cost of their own.
    """
    alike: dict[object, list[Key]] = {}
    seen_by_mode = frozenset(groups)
    for key, group in groups.items():
        for loose in (_loose(group.call), group.call.name):
            alike.setdefault(loose, []).append(key)
    for usage in (one for whole in found for one in _by_kernel(whole)):
        key = _matching(groups, alike, usage)
        if key not in groups:
            accounted = account(usage.call)
            if accounted.kind == "view" and not usage.device_s:
                continue
            wraps = usage.call in containers or (seen is not None and not usage.device_s)
            if seen is not None and usage.call.name in seen:
                wraps = False  # another shape than in the step that was accounted for
            if wraps and not usage.device_s:
                key = WRAPPERS
                groups.setdefault(key, _Group(Call(key[0]), NOTHING))
            else:
                groups[key] = _Group(usage.call, NOTHING if wraps else accounted)
        group = groups[key]
        group.count += 0.0 if key in seen_by_mode else usage.count / steps
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
    told: Told, groups: Mapping[Key, _Group], used: _Used, seen: Sequence[Seen]
) -> Record:
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
            waits=_waits(seen), chains=chains_of(seen),
            missing=tuple(_missing(told)),
        ),
    )  # fmt: skip


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
            "gpuperf.register_cost tells what an operator of your own costs",
        )
    for passed in told.passed:
        if passed.steps and passed.reason:
            yield Caveat("incomplete", f"{passed.name}: {passed.reason}")
