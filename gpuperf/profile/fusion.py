"""Find chains of elementwise operators that one fused kernel could compute.

In a chain each operator takes what an earlier one made, or mostly the same inputs; operators
between them belong to another chain, and overwrite nothing. A fused kernel reads the inputs of the
chain once, and writes once what later operators take; other results stay in registers. Rows of up
to `LONGEST_ROW` elements fit there too, so layer and RMS norms and reductions of rows can be part
of a chain. Any other reduction, a softmax or a product ends a chain.

A tensor that eager mode keeps for a backward pass does not count as an output of a fused chain if
only elementwise operators read it there: torch.compile computes it again in the backward kernel,
from the inputs of the forward chain, where that moves less than to write and read it (the min-cut
partitioner of AOTAutograd). It keeps random numbers and the results of reductions.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from gpuperf.model.aten import Call, Tensor
from gpuperf.model.program import Chain, ObservedCall
from gpuperf.profile.cost.accounting import account, plain_name
from gpuperf.profile.overlap import TensorSet, overlap, size_of

FUSABLE = ("elementwise", "copy", "random")
OF_ROWS = re.compile(r"(?:native_layer_norm|_fused_rms_norm)(?:_backward)?")
REDUCE_ROWS = ("sum", "mean", "var_mean", "amax", "amin")
LONGEST_ROW = 16384  # elements that a block of threads holds in its registers
SHORTEST = 2  # operators of a chain
MOST_OPEN = 16  # chains that the next operator may join
MOST_USES = 1000  # uses of a storage to search: a buffer of all parameters has more
OVERWRITE = ("aten::copy_", "aten::fill_", "aten::zero_")  # they do not read what they overwrite
DRAWN = re.compile(r"dropout|bernoulli")  # results that no kernel computes twice

CallKey = tuple[str, tuple[tuple[int, ...], ...]]  # a call's name and the shapes of its tensors
Uses = dict[int, list[tuple[int, Tensor]]]  # by storage: calls that use it, each with the tensor


@dataclass(eq=False)
class _Run:
    """A chain that grows: the indices of its calls (`members`), the tensors that they `made`, and
    the tensors `read` and bytes `written` by one kernel in their place."""

    members: list[int] = field(default_factory=list)
    made: TensorSet = field(default_factory=TensorSet)
    read: TensorSet = field(default_factory=TensorSet)
    written: int = 0


class _Step:
    """The calls of a step, and by storage those that read it (`taken`) or change it (`changed`)."""

    def __init__(self, calls: Sequence[ObservedCall]) -> None:
        self.calls = calls
        self.figures = [account(one.call) for one in calls]
        self.taken: Uses = {}
        self.changed: Uses = {}
        self.overwriting: set[int] = set()  # calls that write into one of their inputs
        self.born: set[int] = set()  # storages that a call of the step made
        for i, one in enumerate(calls):
            if self.figures[i].kind != "view":
                self._note(i, one)

    def _note(self, i: int, one: ObservedCall) -> None:
        old = {tensor.storage for tensor in one.call.tensors}
        for tensor in self.takes(i):
            self.taken.setdefault(tensor.storage, []).append((i, tensor))
        for tensor in one.call.outputs:
            if tensor.storage in old:
                self.changed.setdefault(tensor.storage, []).append((i, tensor))
                self.overwriting.add(i)
            else:
                self.born.add(tensor.storage)

    def takes(self, i: int) -> tuple[Tensor, ...]:
        """Return the tensors that call *i* reads; `zeros_like` reads none."""
        call, moved = self.calls[i].call, self.figures[i].cost.bytes
        if moved and not any(one.read for one in moved):
            return ()
        return call.tensors[1:] if plain_name(call.name) in OVERWRITE else call.tensors

    def fusable(self, i: int, ran: Container[CallKey] | None) -> bool:
        """Return whether call *i* could be fused: its kind allows it, its storages are known, and
        it ran by itself in the trace (*ran*), not in a kernel that is already fused."""
        call = self.calls[i].call
        key = call.name, tuple(t.shape for t in call.tensors if t.shape)
        known = all(tensor.storage for tensor in (*call.tensors, *call.outputs))
        kind = self.figures[i].kind in FUSABLE or self.of_rows(i)
        return kind and known and (ran is None or key in ran)

    def of_rows(self, i: int) -> bool:
        """Return whether call *i* normalises or reduces rows that fit in a block's registers."""
        call = self.calls[i].call
        rows = call.tensors[0].shape if call.tensors else ()
        if len(rows) < 2 or rows[-1] > LONGEST_ROW:
            return False
        name = plain_name(call.name).removeprefix("aten::")
        if OF_ROWS.fullmatch(name):
            return True
        made = call.outputs[0].shape if call.outputs else ()
        return name in REDUCE_ROWS and made in (rows[:-1], (*rows[:-1], 1))

    def takers(self, tensor: Tensor, after: int) -> list[int]:
        """Return the calls after *after* that take part of *tensor*; [-1] if too many to search."""
        uses = self.taken.get(tensor.storage, [])
        later = uses[bisect_right(uses, after, key=lambda use: use[0]) :]
        if len(later) > MOST_USES:
            return [-1]
        return [i for i, other in later if overlap(tensor, other)]

    def keeps(self, held: TensorSet, first: int, last: int) -> bool:
        """Return whether no call between *first* and *last* writes into a tensor of *held*."""
        changed = [(tensor, self.changed.get(tensor.storage, [])) for tensor in held]
        if any(len(uses) > MOST_USES for _, uses in changed):
            return False
        between = ((t, other) for t, uses in changed for i, other in uses if first < i < last)
        return not any(overlap(tensor, other) for tensor, other in between)


def chains_of(
    observed: Sequence[ObservedCall], ran: Container[CallKey] | None = None
) -> tuple[Chain, ...]:
    """Return the chains among the *observed* calls that would move fewer bytes fused.

    Equal chains are one, with a count. *ran* are the names and shapes of the calls in the trace
    (None without a trace): a dispatch mode observes the operators inside a compiled function, for
    which the trace has kernels that are already fused.
    """
    chains: Counter[tuple[tuple[str, ...], str, int, int, bool]] = Counter()
    step = _Step(observed)
    runs = list(_runs(step, ran))
    _fuse(step, runs)
    for run in runs:
        before = sum(step.figures[i].cost.dram_bytes for i in run.members)
        after = run.read.bytes + run.written
        if after < before:
            names = tuple(observed[i].call.name.removeprefix("aten::") for i in run.members)
            optimizer = all(observed[i].optimizer for i in run.members)
            chains[names, _where(observed, run), before, after, optimizer] += 1
    return tuple(
        Chain(names, where, count, count * before, count * after, optimizer)
        for (names, where, before, after, optimizer), count in chains.items()
    )


def _runs(step: _Step, ran: Container[CallKey] | None) -> Iterator[_Run]:
    """Yield the chains of fusable operators, as runs.

    An operator joins the latest run that it follows. So no run takes a tensor that a later run
    made, and each could be one kernel in place of its last call.
    """
    under_way: list[_Run] = []
    for i, one in enumerate(step.calls):
        if step.figures[i].kind == "view":
            continue
        taken, run = step.takes(i), None
        fusable = step.fusable(i, ran)
        if fusable:
            own = (run for run in reversed(under_way) if _follows(run, one.call, taken))
            run = next(own, None)
        left = under_way
        if not fusable or i in step.overwriting:
            left = [] if run is None else [run]
        if fusable and run is None:
            run = _Run()
            left = [*left[1 - MOST_OPEN :], run]
        yield from (r for r in under_way if r not in left and len(r.members) >= SHORTEST)
        under_way = left
        if run is not None:
            _join(run, i, one.call, taken)
    yield from (run for run in under_way if len(run.members) >= SHORTEST)


def _join(run: _Run, i: int, call: Call, taken: Sequence[Tensor]) -> None:
    """Add call *i* to *run*."""
    run.members.append(i)
    for tensor in taken:
        if not run.made.covers(tensor):
            run.read.add(tensor)
    for tensor in call.outputs:
        run.made.add(tensor)


def _follows(run: _Run, call: Call, taken: Sequence[Tensor]) -> bool:
    """Return whether *call* belongs in the kernel of *run*: it takes a tensor that *run* made, or
    one that *run* reads too and that has at least half the bytes of the call's largest tensor.

    So calls that take the same gradient are fused, and calls that only share a bias are not.
    """
    most = max((size_of(t) for t in (*call.tensors, *call.outputs)), default=0)
    return any(
        run.made.overlaps(tensor) or (2 * size_of(tensor) >= most and run.read.covers(tensor))
        for tensor in taken
    )


def _fuse(step: _Step, runs: Sequence[_Run]) -> None:
    """Set the bytes that each of *runs* writes as one kernel, and what a backward run reads to
    compute tensors of a forward run again."""
    backward = {i: run for run in runs for i in run.members if step.calls[i].backward}
    for run in runs:
        members = set(run.members)
        again, takers = TensorSet(), dict[_Run, None]()
        for tensor in run.made:
            later = [i for i in step.takers(tensor, _maker(step, run, tensor)) if i not in members]
            if later and _again(step, run, tensor) and all(i in backward for i in later):
                again.add(tensor)
                takers |= dict.fromkeys(backward[i] for i in later)
            elif later or tensor.storage not in step.born or _ends(step, run, tensor):
                run.written += size_of(tensor)
        if again and not _computed_again(step, run, again, list(takers)):
            run.written += again.bytes


def _again(step: _Step, run: _Run, tensor: Tensor) -> bool:
    """Return whether a backward kernel could compute *tensor* of a forward run again exactly."""
    makers = [i for i in run.members if any(overlap(t, tensor) for t in step.calls[i].call.outputs)]
    before = [i for i in run.members if i <= max(makers)]
    kept = any(
        step.figures[i].kind == "random" or DRAWN.search(step.calls[i].call.name) or step.of_rows(i)
        for i in before
    )
    forward = not any(step.calls[i].backward for i in run.members)
    return forward and not kept and tensor.storage in step.born


def _maker(step: _Step, run: _Run, tensor: Tensor) -> int:
    """Return the first call of *run* that made elements of *tensor*."""
    made = (i for i in run.members if any(overlap(t, tensor) for t in step.calls[i].call.outputs))
    return next(made)


def _ends(step: _Step, run: _Run, tensor: Tensor) -> bool:
    return any(overlap(tensor, made) for made in step.calls[run.members[-1]].call.outputs)


def _computed_again(step: _Step, run: _Run, again: TensorSet, takers: Sequence[_Run]) -> bool:
    """Let the backward runs *takers* compute the tensors *again* from the inputs of *run*, if that
    moves fewer bytes, and return whether they do."""
    if not step.keeps(run.read, run.members[-1], max(taker.members[-1] for taker in takers)):
        return False
    read = [taker.read.without(again) | run.read for taker in takers]
    kept = again.bytes + sum(taker.read.bytes for taker in takers)
    if sum(one.bytes for one in read) >= kept:
        return False
    for taker, one in zip(takers, read, strict=True):
        taker.read = one
    return True


def _where(calls: Sequence[ObservedCall], run: _Run) -> str:
    return next((calls[i].where for i in run.members if calls[i].where), "")
