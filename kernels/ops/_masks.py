"""Count the pairs of query and key that attention's mask admits.

A causal mask admits for query i the keys j ≤ i + kv − seq (`lower-right`, as FlashAttention does
since version 2.1) or j ≤ i (`upper-left`, as torch's `is_causal` does).
"""

from __future__ import annotations

from gpuperf import Point


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
