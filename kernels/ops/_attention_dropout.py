"""Read from results of attention which elements of the softmax a call has kept.

With q = 0 all scores are equal, so a kept element of the softmax is at least 1/kv, and a dropped
one is 0. With columns of an identity matrix as v, the output is a block of these elements; with
such columns as do, dv is a block of their transpose, for a call that returns gradients alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from gpuperf.kernels._masks import admitted_pairs, dropout_of, mask_of

from gpuperf import Dropout, Point

Inputs = Mapping[str, torch.Tensor]


def kept_by(point: Point, inputs: Inputs, run: Callable[..., object]) -> Dropout:
    """Return which elements of the softmax (b, h, seq, kv) the call keeps.

    *run*(name=tensor, …) returns the result of the call with these inputs in place of its own.
    """
    q, pairs = inputs["q"], admitted_pairs(inputs, point)
    kept = torch.zeros((*q.shape[:2], *pairs.shape), dtype=torch.bool, device=q.device)
    even = {"q": torch.zeros_like(q)}
    if mask_of(point) == "additive":
        even["mask"] = torch.zeros_like(inputs["mask"])
    least = 0.5 / pairs.shape[1]
    of_output = point.mode != "bwd"
    for start in range(0, kept.shape[3 if of_output else 2], point.head_dim):
        block = slice(start, start + point.head_dim)
        if of_output:
            result = run(**even, v=_columns(inputs["v"], block))
            output = result if isinstance(result, torch.Tensor) else result[0]  # type: ignore[index]
            kept[..., block] = (output > least)[..., : kept[..., block].shape[3]]
            continue
        do = _columns(inputs["do"], block)
        for member in range(point.gqa):  # of the query heads whose gradients dv adds
            alone = torch.zeros_like(do)
            alone[:, member :: point.gqa] = do[:, member :: point.gqa]
            dv = run(**even, do=alone)[2]  # type: ignore[index]
            rows = kept[:, member :: point.gqa, block]
            rows.copy_((dv > least).transpose(2, 3)[:, :, : rows.shape[2]])
    return Dropout(kept, pairs, 1 - dropout_of(point))


def _columns(like: torch.Tensor, block: slice) -> torch.Tensor:
    """Return zeros in the shape (b, h, n, d) of *like*, with an identity matrix in rows *block*."""
    columns = torch.zeros_like(like)
    rows = columns[:, :, block]
    rows.copy_(torch.eye(rows.shape[2], rows.shape[3], dtype=like.dtype, device=like.device))
    return columns
