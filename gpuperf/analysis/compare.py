"""How much faster is one implementation than another, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuperf.model.record import Record
from gpuperf.model.samples import Samples

__all__ = ["Key", "Speedup", "key_of", "ratio", "same_case", "speedups"]

MOST = 1e15  # of a ratio: a stranger's file may hold times whose ratio no float can

# What two records have in common that are of one case by several implementations.
Key = tuple[object, ...]


@dataclass(frozen=True)
class Speedup:
    """The baseline's median over this one's; a 95 % interval, where both have one of their own."""

    value: float
    low: float | None = None
    high: float | None = None


def same_case(record: Record) -> Key:
    """Operation, point, contract, pass and rank: what is measured, whoever computes it."""
    point = tuple(sorted((k, str(v)) for k, v in record.case.point.items()))
    return (record.case.op, point, record.contract, record.pass_index, record.rank)


def key_of(record: Record) -> Key:
    """*record* among those of its comparison."""
    return (*same_case(record), record.case.id)


def speedups(records: Iterable[Record], baseline: str) -> Mapping[Key, Speedup]:
    """By `key_of`, of each record that has a time and whose case the implementation *baseline* has
    a time of. A case whose baseline failed has none."""
    found = [(record, times) for record in records if (times := _times(record)) is not None]
    base = {same_case(r): times for r, times in found if r.case.implementation == baseline}
    return {
        key_of(record): ratio(base[same_case(record)], times)
        for record, times in found
        if same_case(record) in base
        and 1 / MOST < base[same_case(record)].median_s / times.median_s < MOST
    }


def _times(record: Record) -> Samples | None:
    samples = record.samples
    if record.status != "ok" or samples is None or not samples.size or samples.median_s <= 0:
        return None
    return samples


def ratio(base: Samples, own: Samples) -> Speedup:
    """On the logarithm, where a ratio is a difference: the two intervals' own halves are added as
    squares (MOVER; Zou and Donner, Statistics in Medicine 27, 2008)."""
    value = base.median_s / own.median_s
    if base is own:
        return Speedup(1.0)
    (base_low, base_high), (own_low, own_high) = base.interval_s, own.interval_s
    if base.size < 2 or own.size < 2 or min(base_low, own_low) <= 0:
        return Speedup(value)
    down = math.hypot(math.log(base.median_s / base_low), math.log(own_high / own.median_s))
    up = math.hypot(math.log(base_high / base.median_s), math.log(own.median_s / own_low))
    if up > math.log(MOST):
        return Speedup(value)
    return Speedup(value, value * math.exp(-down), value * math.exp(up))
