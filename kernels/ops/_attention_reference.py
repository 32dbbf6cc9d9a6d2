"""Compute attention and its gradients in float64, which all implementations are compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from gpuperf.kernels._attention_inputs import NAMES
from gpuperf.kernels._masks import (
    cap_of,
    dropout_of,
    has_blind_queries,
    hidden_pairs,
    key_count,
    mask_of,
)

from gpuperf import Point

LARGEST_CHUNK = 2**27  # float64 scores that are held at a time: 1 GiB


def reference(inputs: Mapping[str, torch.Tensor], point: Point) -> Any:
    """Compute attention in float64 for one head of keys and LARGEST_CHUNK scores at a time.

    With dropout, `kept` of the inputs is true for the elements of the softmax that the call kept.
    """
    q, k, v = (inputs[name].double().contiguous() for name in NAMES)
    do = inputs["do"].double().contiguous() if point.mode != "fwd" else q  # never read
    o, dq, dk, dv = (torch.zeros_like(t) for t in (q, q, k, v))
    # The query heads that share a head of keys are rows of one matrix of queries.
    index = torch.arange(point.gqa * point.seq, device=q.device) % point.seq
    keys, scale = key_count(point), point.head_dim**-0.5
    rows = max(1, LARGEST_CHUNK // keys)
    kept = inputs["kept"].reshape(-1, len(index), keys) if "kept" in inputs else None
    of_queries = (t.view(-1, len(index), point.head_dim) for t in (q, o, dq, do))
    of_keys = (t.flatten(0, 1) for t in (k, v, dk, dv))
    heads = zip(*of_queries, *of_keys, strict=True)
    for head, (query, out, dquery, grad, key, value, dkey, dvalue) in enumerate(heads):
        for chunk in (slice(start, start + rows) for start in range(0, len(index), rows)):
            scores = query[chunk] * scale @ key.T
            if cap := cap_of(point):
                scores = cap * torch.tanh(scores / cap)
            slopes = 1 - (scores / cap).square() if cap else None
            if mask_of(point) == "additive":
                scores += inputs["mask"][index[chunk]]
            if (hidden := hidden_pairs(inputs, point, index[chunk])) is not None:
                scores.masked_fill_(hidden, -math.inf)
            shares = torch.softmax(scores, -1)
            if has_blind_queries(point):
                shares.nan_to_num_(0.0)
            factors = None if kept is None else kept[head, chunk] / (1 - dropout_of(point))
            dropped = shares if factors is None else shares * factors
            out[chunk] = dropped @ value
            if point.mode == "fwd":
                continue
            dvalue += dropped.T @ grad[chunk]
            drop = (grad[chunk] * out[chunk]).sum(-1, keepdim=True)
            dshares = grad[chunk] @ value.T
            if factors is not None:
                dshares *= factors
            dscores = dshares.sub_(drop).mul_(shares)
            if slopes is not None:
                dscores *= slopes
            dquery[chunk] = dscores @ key * scale
            dkey += dscores.T @ query[chunk] * scale
    gradients = (dq, dk, dv)
    return {"fwd": o, "bwd": gradients, "fwd+bwd": (o, *gradients)}[point.mode]
