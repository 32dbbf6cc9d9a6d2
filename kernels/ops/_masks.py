"""Which pairs of query and key does attention's mask show?

A causal mask shows query i the keys j ≤ i + kv − seq (`lower-right`, as FlashAttention since 2.1)
or j ≤ i (`upper-left`, as torch's `is_causal`).
"""

from __future__ import annotations

from gpuperf import Point


def key_count(point: Point) -> int:
    """How many keys there are: `kv`, or as many as queries where that is 0."""
    return int(point.kv or point.seq)


def offset_of(point: Point) -> int:
    """Query i sees the keys j ≤ i + this."""
    return key_count(point) - int(point.seq) if point.align == "lower-right" else 0


def seen_pairs(point: Point) -> int:
    """The pairs of query and key that the mask shows."""
    queries, keys, offset = int(point.seq), key_count(point), offset_of(point)
    if point.causal == "no":
        return queries * keys
    # Query i sees min(keys, i + 1 + offset) keys, where that is positive: a ramp, then a plateau.
    first = max(0, -offset)
    full = min(max(first, keys - 1 - offset), queries)
    return (full - first) * (first + full + 1 + 2 * offset) // 2 + (queries - full) * keys


def needed_pairs(point: Point) -> int:
    """The pairs that the model's FLOPs count, by the convention asked for.

    Half is what papers take of as many keys as queries; of others a mask shows more or fewer.
    """
    if (point.causal, point.causal_flops) == ("yes", "half") and key_count(point) == point.seq:
        return (int(point.seq) ** 2 + 1) // 2
    return seen_pairs(point)


def blind_queries(point: Point) -> bool:
    """Whether some query sees no key at all."""
    return bool(point.causal == "yes" and offset_of(point) < 0)
