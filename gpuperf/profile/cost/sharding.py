"""Count the bytes of FSDP2's own copies, which have no FLOPs.

torch defines them in `_fsdp_collectives.py` and `_fsdp_param.py` of `torch.distributed.fsdp`.
"""

from __future__ import annotations

from gpuperf.profile.cost.arguments import Arguments, Unreadable
from gpuperf.profile.cost.movement import overwritten
from gpuperf.profile.cost.tally import Rules, Tally, elements, moved, named


def gathered(args: Arguments) -> Tally:
    """Count `all_gather_copy_in` (parts, whole, …): parts are copied to this rank's place in it.

    An older torch makes the whole itself, so that argument 1 is no tensor.
    """
    parts = args.tensors(0)
    whole = args.optional(1) or next(iter((*args.call.outputs, *parts)), None)
    if whole is None:
        raise Unreadable("it has no tensor")
    return Tally((), moved(parts, (elements(whole, sum(part.size for part in parts)),)))


def copied_out(args: Arguments) -> Tally:
    """Count `split_with_sizes_copy` (x, sizes, axis, results) and `chunk_cat` (parts, axis, count,
    result), which write the tensors that they are given last."""
    return Tally((), moved(args.tensors(0), args.tensors(3)))


RULES: Rules = {
    **named("copy", gathered, "all_gather_copy_in"),
    **named("copy", copied_out, "split_with_sizes_copy chunk_cat"),
    **named("copy", overwritten, "copy"),
}
