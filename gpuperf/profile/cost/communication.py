"""Collectives: what a rank hands over and what it is given, once each, through its link.

`read` leaves this rank, `written` arrives. How often an algorithm passes it on (a ring's
all-reduce: 2·(n − 1)/n times) is not counted, since hardly a call says how many ranks there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.model.aten import Tensor
from gpuperf.model.cost import Bytes
from gpuperf.profile.cost.arguments import Arguments
from gpuperf.profile.cost.tally import Tally, memory

SPACES = ("c10d", "c10d_functional", "_c10d_functional", "nccl", "gloo")
# Words in the names of those whose results are other tensors, that only give, that only take.
APART = ("reduce_scatter", "gather", "all_to_all", "alltoall", "scatter")
GIVES, TAKES = "send", "recv"
NOTHING = ("barrier", "wait", "check")


def sides(args: Arguments) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """What is handed over, and what is given back."""
    name, outputs = args.name.lower(), args.call.outputs
    first, second = args.tensors(0), args.tensors(1)
    if any(word in name for word in NOTHING):
        return (), ()
    if GIVES in name or TAKES in name:
        return (first, ()) if GIVES in name else ((), outputs or first)
    if any(word in name for word in APART) and second:
        return second, first  # results come first in c10d's schemas
    return first, outputs or made_of(args, name, first)


def made_of(args: Arguments, name: str, given: Sequence[Tensor]) -> Sequence[Tensor]:
    """The results that a functional collective makes of *given*, by the ranks that it names."""
    if "reduce_scatter" in name:
        ranks = args.integer(2)
        return [Tensor((t.size // ranks,), t.dtype) for t in given]
    if "all_gather" in name:
        return [Tensor((t.size * args.integer(1),), t.dtype) for t in given]
    return given


def collective(args: Arguments) -> Tally:
    """Of any of those names."""
    given, taken = sides(args)
    return Tally((), Bytes(memory(given), memory(taken), "link"))
