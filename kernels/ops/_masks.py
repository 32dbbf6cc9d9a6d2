"""Describe the masks and the dropout of attention, and count the pairs that a mask admits.

A causal mask admits for query i the keys j ≤ i + kv − seq (`lower-right`, as FlashAttention does
since version 2.1) or j ≤ i (`upper-left`, as torch's `is_causal` does).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from gpuperf import Axis, Point
from gpuperf.units import itemsize

MASK = Axis(
    "mask",
    "none",
    "mask of seq·kv elements as an input: added to scores, or true where a pair counts",
    choices=("none", "additive", "boolean"),
    optional=True,
)
DROPOUT = Axis(
    "dropout",
    "0",
    "probability that a softmax is set to 0",
    choices=("0", "0.1", "0.5"),
    optional=True,
)


def key_count(point: Point) -> int:
    """Return the number of keys: `kv`, or the number of queries where `kv` is 0."""
    return int(point.kv or point.seq)


def offset_of(point: Point) -> int:
    """Return the offset of the mask: query i attends to the keys j ≤ i + offset."""
    return key_count(point) - int(point.seq) if point.align == "lower-right" else 0


def unmasked_pairs(point: Point) -> int:
    """Return the number of pairs of query and key that the mask admits."""
    queries, keys, offset = int(point.seq), key_count(point), offset_of(point)
    if point.causal == "no":
        return queries * keys
    # Query i attends to min(keys, i + 1 + offset) keys if that is positive: a ramp, then a plateau.
    first = max(0, -offset)
    full = min(max(first, keys - 1 - offset), queries)
    return (full - first) * (first + full + 1 + 2 * offset) // 2 + (queries - full) * keys


def counted_pairs(point: Point) -> int:
    """Return the number of pairs that FLOPs are counted over, by the axis `causal_flops`.

    `half` is the convention of papers, n²/2, which applies only to as many keys as queries.
    """
    if (point.causal, point.causal_flops) == ("yes", "half") and key_count(point) == point.seq:
        return (int(point.seq) ** 2 + 1) // 2
    return unmasked_pairs(point)


def has_blind_queries(point: Point) -> bool:
    """Return whether the mask hides all keys from some query."""
    return bool(point.causal == "yes" and offset_of(point) < 0)


def mask_of(point: Point) -> str:
    """Return the kind of the mask tensor: `none`, `additive` or `boolean`."""
    return str(point.get("mask", MASK.default))


def dropout_of(point: Point) -> float:
    """Return the probability that an element of the softmax is set to 0."""
    return float(point.get("dropout", DROPOUT.default))


def mask_bytes(point: Point) -> int:
    """Return the bytes of the mask tensor, which all heads of all sequences share."""
    elements = int(point.seq) * key_count(point)
    return {"none": 0, "additive": itemsize(point.dtype), "boolean": 1}[mask_of(point)] * elements


def hidden_pairs(
    inputs: Mapping[str, torch.Tensor], point: Point, rows: torch.Tensor
) -> torch.Tensor | None:
    """Return which pairs of the queries *rows* and the keys are masked, (rows, kv); None if none.

    A pair is masked by a causal mask, a boolean mask, or both.
    """
    hidden = ~inputs["mask"][rows] if mask_of(point) == "boolean" else None
    if point.causal == "yes":
        j = torch.arange(key_count(point), device=rows.device)
        after = j > rows[:, None] + offset_of(point)
        hidden = after if hidden is None else hidden | after
    return hidden


def admitted_pairs(inputs: Mapping[str, torch.Tensor], point: Point) -> torch.Tensor:
    """Return which pairs of query and key no mask hides, (seq, kv)."""
    rows = torch.arange(int(point.seq), device=inputs["q"].device)
    hidden = hidden_pairs(inputs, point, rows)
    if hidden is None:
        return torch.ones(len(rows), key_count(point), dtype=torch.bool, device=rows.device)
    return ~hidden


def admitted_keys(inputs: Mapping[str, torch.Tensor], point: Point) -> torch.Tensor:
    """Return the number of keys that no mask hides from each query, (seq,), in float64."""
    if mask_of(point) == "boolean":
        return admitted_pairs(inputs, point).sum(1).double()
    keys = torch.full((int(point.seq),), float(key_count(point)), device=inputs["q"].device)
    if point.causal == "yes":
        last = torch.arange(int(point.seq), device=keys.device) + 1.0 + offset_of(point)
        keys = keys.minimum(last)
    return keys.double()
