"""Which elementwise operators follow each other so that one kernel could do them all?

A chain is a run of neighbours, views aside, each of which takes what an earlier one of it made.
Fused, its inputs from outside are read once, and what others take later is written once; the rest
stays in registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpuperf.analysis.accounting import account
from gpuperf.model.aten import Tensor
from gpuperf.model.program import Chain, Seen

__all__ = ["chains_of"]

FUSABLE = ("elementwise", "copy", "random")
SHORTEST = 2


@dataclass
class _Run:
    """Neighbours, and the storages that they made."""

    members: list[int] = field(default_factory=list)
    made: set[int] = field(default_factory=set)


def chains_of(seen: Sequence[Seen]) -> tuple[Chain, ...]:
    """The chains in *seen*, the calls of a step in order; those of the same operators, line and
    bytes are one, as often as they come."""
    later = _last_uses(seen)
    found: Counter[tuple[tuple[str, ...], str, int, int]] = Counter()
    for run in _runs(seen):
        before, after = _bytes(seen, run, later)
        if after < before:
            names = tuple(seen[i].call.name.removeprefix("aten::") for i in run.members)
            found[names, _where(seen, run), before, after] += 1
    return tuple(
        Chain(names, where, count, count * before, count * after)
        for (names, where, before, after), count in found.items()
    )


def _runs(seen: Sequence[Seen]) -> Iterator[_Run]:
    run = _Run()
    for i, one in enumerate(seen):
        kind = account(one.call).kind
        if kind == "view":
            continue
        fusable = kind in FUSABLE and all(t.storage for t in (*one.call.tensors, *one.call.outputs))
        taken = {tensor.storage for tensor in one.call.tensors}
        if not fusable or (run.members and not taken & run.made):
            if len(run.members) >= SHORTEST:
                yield run
            run = _Run()
        if fusable:
            run.members.append(i)
            run.made |= {tensor.storage for tensor in one.call.outputs}
    if len(run.members) >= SHORTEST:
        yield run


def _last_uses(seen: Sequence[Seen]) -> dict[int, int]:
    """The last call that takes each storage."""
    return {t.storage: i for i, one in enumerate(seen) for t in one.call.tensors}


def _bytes(seen: Sequence[Seen], run: _Run, later: dict[int, int]) -> tuple[int, int]:
    """Bytes of the members one by one, and fused."""
    before = sum(account(seen[i].call).cost.dram_bytes for i in run.members)
    outside: dict[int, int] = {}
    inside: dict[int, int] = {}
    for i in run.members:
        for tensor in seen[i].call.tensors:
            if tensor.storage not in inside:
                outside[tensor.storage] = max(outside.get(tensor.storage, 0), _size(tensor))
        for tensor in seen[i].call.outputs:
            inside[tensor.storage] = _size(tensor)
    last = run.members[-1]
    kept = {t.storage for t in seen[last].call.outputs}
    written = sum(
        size for storage, size in inside.items() if storage in kept or later.get(storage, -1) > last
    )
    return before, sum(outside.values()) + written


def _size(tensor: Tensor) -> int:
    try:
        return tensor.bytes
    except ValueError:
        return 0


def _where(seen: Sequence[Seen], run: _Run) -> str:
    return next((seen[i].where for i in run.members if seen[i].where), "")

