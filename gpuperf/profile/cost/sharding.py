"""Count the bytes of FSDP2's own copies (torch's `_fsdp_collectives.py`), which have no FLOPs."""

from __future__ import annotations

from gpuperf.profile.cost.arguments import Arguments
from gpuperf.profile.cost.movement import overwritten
from gpuperf.profile.cost.tally import Rules, Tally, elements, moved, named


def gathered(args: Arguments) -> Tally:
    """Count `all_gather_copy_in` (parts, whole, …): parts are copied to this rank's place in it."""
    parts, whole = args.tensors(0), args.tensor(1)
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
