"""Count the bytes that a rank sends and receives in a collective, each element once.

`read` bytes leave this rank, `written` bytes arrive. The factor of the algorithm (a ring all-reduce
moves 2·(n − 1)/n times as much) is left out, since few calls record the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.model.aten import Tensor
from gpuperf.model.cost import Bytes
from gpuperf.profile.cost.arguments import Arguments
from gpuperf.profile.cost.tally import Tally, memory

SPACES = ("c10d", "c10d_functional", "_c10d_functional", "nccl", "gloo")
# Words in the names of collectives whose results are other tensors than their inputs.
APART = ("reduce_scatter", "gather", "all_to_all", "alltoall", "scatter")
NOTHING = ("barrier", "wait", "check")


def collective(args: Arguments) -> Tally:
    """Count the bytes that a communication operator sends and receives over the link."""
    sent, received = sides(args)
    return Tally((), Bytes(memory(sent), memory(received), "link"))


def sides(args: Arguments) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Return the tensors that are sent, and those that are received."""
    name, outputs = args.name.lower(), args.call.outputs
    first, second = args.tensors(0), args.tensors(1)
    if any(word in name for word in NOTHING):
        return (), ()
    if "send" in name:
        return first, ()
    if "recv" in name:
        return (), outputs or first
    if any(word in name for word in APART) and second:
        return second, first  # results come first in c10d's schemas
    return first, outputs or functional_results(args, name, first)


def functional_results(args: Arguments, name: str, given: Sequence[Tensor]) -> Sequence[Tensor]:
    """Return the results of a functional collective, by the number of ranks among its arguments."""
    if "reduce_scatter" in name:
        ranks = args.integer(2)
        return [Tensor((t.size // ranks,), t.dtype) for t in given]
    if "all_gather" in name:
        return [Tensor((t.size * args.integer(1),), t.dtype) for t in given]
    return given
