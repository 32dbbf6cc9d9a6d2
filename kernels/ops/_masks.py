"""Describe the masks and the dropout of attention, and count the pairs that a mask admits.

A causal mask admits for query i the keys j ≤ i + kv − seq (`lower-right`, as FlashAttention does
since version 2.1) or j ≤ i (`upper-left`, as torch's `is_causal` does). The key where j is equal is
the query's own. A window admits that key and the `window` − 1 keys before it, without a causal mask
also as many behind it. Documents admit keys of the query's document alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import torch

from gpuperf import Axis, Point
from gpuperf.errors import CannotMeasure
from gpuperf.units import itemsize

MOST_DOCUMENTS = 2**16
GOLDEN = (math.sqrt(5) - 1) / 2

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
WINDOW = Axis("window", 0, "nearest keys that a query sees; 0: all", minimum=0, optional=True)
SOFTCAP = Axis("softcap", 0, "bound of the scores; 0: none", minimum=0, optional=True)
DOCUMENTS = Axis("documents", 1, "documents of a sequence, apart", optional=True)


def key_count(point: Point) -> int:
    """Return the number of keys: `kv`, or the number of queries where `kv` is 0."""
    return int(point.kv or point.seq)


def offset_of(point: Point) -> int:
    """Return the offset of the mask: query i attends to the keys j ≤ i + offset."""
    return key_count(point) - int(point.seq) if point.align == "lower-right" else 0


def window_of(point: Point) -> int:
    """Return the nearest keys that a query sees on either side, its own included; 0 for all."""
    return int(point.get("window", WINDOW.default))


def cap_of(point: Point) -> int:
    """Return the bound of the scores; 0 for none."""
    return int(point.get("softcap", SOFTCAP.default))


def document_starts(point: Point) -> tuple[int, ...]:
    """Return the first token of each document, and the end of the last.

    The lengths are of two or three sizes, up to 2.6 to 1: the starts are the multiples of the
    golden ratio, without their whole part, times the sequence.

    Raises: CannotMeasure for more documents than tokens or 2¹⁶, or as many keys as queries lacking.
    """
    count, tokens = int(point.get("documents", DOCUMENTS.default)), int(point.seq)
    if count > 1 and key_count(point) != tokens:
        raise CannotMeasure(
            "documents hold keys and queries alike", "leave --kv out, or give --documents 1"
        )
    if count > min(tokens, MOST_DOCUMENTS):
        most = f"at most {min(tokens, MOST_DOCUMENTS):,} documents"
        raise CannotMeasure(f"a sequence of {tokens:,} tokens has {most}", "give fewer --documents")
    starts = sorted(int(tokens * (k * GOLDEN % 1)) for k in range(count))
    return (*starts, tokens)


def has_documents(point: Point) -> bool:
    """Return whether a sequence has more than one document."""
    return int(point.get("documents", DOCUMENTS.default)) > 1


def is_banded(point: Point) -> bool:
    """Return whether a window or documents hide pairs."""
    return window_of(point) > 0 or has_documents(point)


def diagonals(point: Point) -> tuple[int | None, int | None]:
    """Return the least and the greatest j − i of an admitted pair; None is no bound."""
    offset, reach = offset_of(point), window_of(point) - 1
    least = offset - reach if reach >= 0 else None
    if point.causal == "yes":
        return least, offset
    return least, (offset + reach if reach >= 0 else None)


def unmasked_pairs(point: Point) -> int:
    """Return the number of pairs of query and key that the mask admits."""
    least, most = diagonals(point)

    def between(queries: int, keys: int) -> int:
        upto = queries * keys if most is None else pairs_upto(queries, keys, most)
        return upto - (0 if least is None else pairs_upto(queries, keys, least - 1))

    starts = document_starts(point)
    if len(starts) == 2:
        return between(int(point.seq), key_count(point))
    return sum(between(end - start, end - start) for start, end in pairwise(starts))


def pairs_upto(queries: int, keys: int, offset: int) -> int:
    """Return the number of pairs with j ≤ i + *offset*."""
    # Query i attends to min(keys, i + 1 + offset) keys if that is positive: a ramp, then a plateau.
    first = min(max(0, -offset), queries)
    full = min(max(first, keys - 1 - offset), queries)
    return (full - first) * (first + full + 1 + 2 * offset) // 2 + (queries - full) * keys


def key_ranges(point: Point, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first key that each query sees and the one after the last, (seq,) each.

    Both rise from query to query; a query that sees no key has an end at or before its beginning.
    """
    queries, keys = int(point.seq), key_count(point)
    i = torch.arange(queries, device=device)
    (least, most), starts = diagonals(point), torch.tensor(document_starts(point), device=device)
    begins, ends = torch.zeros_like(i), torch.full_like(i, keys)
    if len(starts) > 2:
        document = torch.searchsorted(starts, i, right=True)
        begins, ends = starts[document - 1], starts[document]
    if least is not None:
        begins = begins.maximum(i + least)
    if most is not None:
        ends = ends.minimum(i + most + 1)
    return begins.clamp(0, keys), ends.clamp(0, keys)


def seen_keys(point: Point) -> int:
    """Return the number of keys that some query sees, which a window may leave out."""
    least, most = diagonals(point)
    begin = max(0, least or 0)
    end = key_count(point) if most is None else min(key_count(point), int(point.seq) + most)
    return max(0, end - begin)


def counted_pairs(point: Point) -> int:
    """Return the number of pairs that FLOPs are counted over, by the axis `causal_flops`.

    `half` is the convention of papers, n²/2, which applies only to as many keys as queries, and to
    neither windows nor documents.
    """
    halved = (point.causal, point.causal_flops) == ("yes", "half") and not is_banded(point)
    if halved and key_count(point) == point.seq:
        return (int(point.seq) ** 2 + 1) // 2
    return unmasked_pairs(point)


def most_keys(point: Point) -> int:
    """Return a number of keys that no query sees more than."""
    least, most = diagonals(point)
    counts = [key_count(point)]
    if has_documents(point):
        counts.append(max(end - start for start, end in pairwise(document_starts(point))))
    if most is not None:
        counts.append(int(point.seq) + most)
        if least is not None:
            counts.append(most - least + 1)
    return min(counts)


def has_blind_queries(point: Point) -> bool:
    """Return whether the mask hides all keys from some query."""
    least, most = diagonals(point)
    before = most is not None and most < 0
    return before or (least is not None and int(point.seq) - 1 + least >= key_count(point))


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

    A pair is masked by its position, a boolean mask, or both.
    """
    hidden = ~inputs["mask"][rows] if mask_of(point) == "boolean" else None
    if has_hidden_places(point):
        outside = hidden_places(point, rows)
        hidden = outside if hidden is None else hidden | outside
    return hidden


def has_hidden_places(point: Point) -> bool:
    """Return whether a causal mask, a window or documents hide pairs."""
    return point.causal == "yes" or is_banded(point)


def hidden_places(point: Point, rows: torch.Tensor) -> torch.Tensor:
    """Return which pairs of the queries *rows* and the keys their places hide, (rows, kv)."""
    begins, ends = (of[rows, None] for of in key_ranges(point, rows.device))
    j = torch.arange(key_count(point), device=rows.device)
    return (j < begins) | (j >= ends)


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
    begins, ends = key_ranges(point, inputs["q"].device)
    return (ends - begins).clamp_min(0).double()
