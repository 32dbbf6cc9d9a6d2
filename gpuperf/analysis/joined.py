"""Which operator of a step computed what, and which kernels were its own?

The accounting pass knows every call of a step with its results, the trace the kernels that each
launched; they are joined by name, shapes and direction. Of a trace alone (an imported one) the cost
of a call is inferred from its inputs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.analysis.accounting import Accounted, Kind, account
from gpuperf.analysis.attribution import Usage, chains
from gpuperf.model.aten import Call
from gpuperf.model.cost import Cost, Work
from gpuperf.model.program import Seen
from gpuperf.model.record import Kernel
from gpuperf.model.timeline import Timeline

__all__ = ["Group", "Key", "add_traced", "containers", "grouped"]

Key = tuple[str, tuple[tuple[tuple[int, ...], str], ...], bool]

MOST_LINES = 3  # of an operator
NOTHING = Accounted(Cost(), Work(), "view", True)
WRAPPERS: Key = ("wrappers, autograd and Python", (), False)
# Those whose parts are of other kinds.
COMPOSED = {"aten::cross_entropy_loss", "aten::nll_loss", "aten::nll_loss_nd", "aten::dropout"}


@dataclass
class Group:
    """Calls of one key in a step: from the accounting pass, and from the trace."""

    call: Call
    found: Accounted
    count: float = 0.0
    lines: dict[str, None] = field(default_factory=dict)
    device_s: float = 0.0
    host_s: float = 0.0
    kernels: tuple[Kernel, ...] = ()
    traced: bool = False


def _accounted(one: Seen, tf32: bool) -> Accounted:
    """By what the program says of its own operator, or by ours."""
    if one.cost is None:
        return account(one.call, tf32)
    kinds = {flops.kind for flops in one.cost.flops}
    kind: Kind = "matmul" if "matmul" in kinds else "elementwise"
    return Accounted(one.cost, Work(one.cost.flops, one.cost.bytes), kind, True)


def _key(call: Call, backward: bool) -> Key:
    return call.name, tuple((t.shape, t.dtype) for t in call.tensors), backward


def grouped(seen: Iterable[Seen], tf32: bool) -> dict[Key, Group]:
    groups: dict[Key, Group] = {}
    for one in seen:
        key = _key(one.call, one.backward)
        if key not in groups:
            groups[key] = Group(one.call, _accounted(one, tf32))
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
    groups: Mapping[Key, Group], alike: Mapping[object, Sequence[Key]], usage: Usage
) -> Key:
    """The key of the group that *usage* is of; its own where there is none."""
    own = _key(usage.call, usage.backward)
    if own in groups:
        return own
    near = alike.get(_loose(usage.call), ())
    if not near and len(alike.get(usage.call.name, ())) == 1:
        near = alike[usage.call.name]
    return next((key for key in near if key[2] == usage.backward), near[0] if near else own)


def containers(timeline: Timeline) -> set[Call]:
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


def add_traced(
    groups: dict[Key, Group], found: Sequence[Usage], steps: int, seen: Container[str] | None,
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
                groups.setdefault(key, Group(Call(key[0]), NOTHING))
            else:
                groups[key] = Group(usage.call, NOTHING if wraps else accounted)
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
