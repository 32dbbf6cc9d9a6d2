"""What did a call of an operator compute and move, whoever saw it: a running program, or a trace?

`Cost` is what the model needs of it: its FLOPs, by kind and dtype, and each distinct element of its
inputs read once, each of its results written once. `Work` is what this very operator does, which is
more where it computes something again. Formulas stand with their families, in `operators`; where
nobody saw the results, their shapes are inferred, and what cannot be is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuperf.model.aten import Call, Tensor
from gpuperf.model.cost import Bytes, Cost, Work
from gpuperf.profile.cost import (
    attention,
    communication,
    convolution,
    indexing,
    matmul,
    movement,
    normalisation,
    optimizer,
    pointwise,
    reduction,
)
from gpuperf.profile.cost.arguments import Arguments
from gpuperf.profile.cost.tally import Kind, Rule, Rules, Tally, memory

FAMILIES = (
    matmul,
    convolution,
    attention,
    normalisation,
    pointwise,
    reduction,
    movement,
    indexing,
    optimizer,
)
RULES: Rules = {name: entry for family in FAMILIES for name, entry in family.RULES.items()}
OURS = ("aten", "higher_order")
# Kineto shows some of torch's own without their namespace.
BARE = {"detach", "detach_", "flex_attention"}
MOST_AXES = 64  # TensorIterator's and more than anybody's: a shape beyond is garbage


@dataclass(frozen=True)
class OperatorCost:
    """A call's figures. *known*: somebody knows its FLOPs; else bytes are those of its tensors."""

    cost: Cost
    work: Work
    kind: Kind
    known: bool


def account(call: Call, tf32: bool = False) -> OperatorCost:
    """The figures of *call*; fp32 matmuls and convolutions are in tf32 where *tf32* is set.

    Never raises: a call that its formula cannot read is not `known`.
    """
    kind, rule = found(call.name)
    tensors = (*call.tensors, *call.outputs)
    if rule is None or any(len(tensor.shape) > MOST_AXES for tensor in tensors):
        return unread(call, kind)
    try:
        tally = rule(Arguments(call, tf32))
    except (ValueError, LookupError, ArithmeticError):  # a stranger's call: garbage
        return unread(call, kind)
    return counted(tally, kind)


def plain_name(name: str) -> str:
    """Without the overload."""
    space, colons, rest = name.rpartition("::")
    return f"{space}{colons}{rest.partition('.')[0]}"


def found(name: str) -> tuple[Kind, Rule | None]:
    """The family and the rule of an operator's name."""
    space = name.partition(":")[0]
    if space in communication.SPACES:
        return "communication", communication.collective
    if space == "profiler":  # where a range begins and ends
        return "view", movement.nothing
    if space not in OURS and plain_name(name) not in BARE:
        return "unknown", None
    return RULES.get(Arguments(Call(name)).name, ("unknown", None))


def counted(tally: Tally, kind: Kind) -> OperatorCost:
    """The figures of what was counted."""
    moves = (tally.moves,) if tally.moves.read or tally.moves.written else ()
    work = tally.work or Work(tally.flops, moves)
    return OperatorCost(Cost(tally.flops, moves), work, tally.kind or kind, tally.known)


def unread(call: Call, kind: Kind) -> OperatorCost:
    """What is sure of a call that nobody can read: its tensors' bytes, if they are any.

    Of an unknown operator, a result in an input's storage may be a view: it is not counted.
    """
    storages = {tensor.storage for tensor in call.tensors} - {0}
    results = [t for t in call.outputs if kind != "unknown" or t.storage not in storages]
    if kind in ("view", "communication"):
        return OperatorCost(Cost(), Work(), kind, False)
    return counted(Tally((), Bytes(sure(call.tensors), sure(results)), known=False), kind)


def sure(tensors: Iterable[Tensor]) -> int:
    """Bytes of those of *tensors* that a memory could hold, of a known dtype."""
    held = []
    for tensor in tensors:
        if len(tensor.shape) > MOST_AXES:
            continue
        try:
            fits = tensor.bytes < 2**62
        except ValueError:
            continue
        if fits:
            held.append(tensor)
    return memory(held)
