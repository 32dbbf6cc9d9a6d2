"""Look up measured times of linear layers and of decode attention, and interpolate between them.

The workload `linear` has the axes `m` (tokens), `n` (outputs) and `k` (inputs); its weights have
the format of the axis `weights` or else of `dtype`. The workload `decode` has the axes `batch`,
`kv` (cached tokens of a sequence), `heads`, `gqa` (heads that share one of keys), `head_dim` and
`queries` (new tokens); `dtype` is the format of the cache. The fastest implementation counts.

A time is looked up as its ratio to the roof of the same layer, since the ratio changes less than
the time: the logarithm of the ratio is interpolated over the logarithms of the sizes. Beyond the
measured sizes the ratio of the nearest one is kept, and the result says so.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpuperf.errors import UsageError
from gpuperf.model.peaks import Peaks, matches
from gpuperf.model.record import Record, Run
from gpuperf.run.store import read_runs
from gpuperf.theory.decoding import attention_seconds, decode_attention
from gpuperf.theory.transformer.model import Linear, Model
from gpuperf.theory.transformer.step import Estimate, Formats, Roofs
from gpuperf.units import itemsize

LINEAR, DECODE = "linear", "decode"
HINT = "measure the workloads `linear` and `decode` at these sizes, and give those run files"


class LinearPoint(NamedTuple):
    """The sizes at which a linear layer was measured, and the format of its weights."""

    weights: str
    group: int  # 0: unknown
    m: int
    n: int
    k: int


class DecodePoint(NamedTuple):
    """The sizes at which decode attention was measured, and the format of its cache."""

    cache: str
    heads: int
    kv_heads: int
    head_width: int
    queries: int
    batch: int
    kv: float


@dataclass(frozen=True)
class Points:
    """The least measured seconds at each point, and the devices of the runs: name and SMs."""

    linear: Mapping[LinearPoint, float]
    decode: Mapping[DecodePoint, float]
    devices: tuple[tuple[str, int], ...] = ()


@functools.lru_cache(maxsize=8)
def read_points(paths: tuple[str, ...]) -> Points:
    """Return the points in the run files *paths*. Raises: RunFileError, UsageError if none has a
    time of `linear` or `decode`."""
    points = points_of([run for path in paths for run in read_runs(Path(path))])
    if not points.linear and not points.decode:
        raise UsageError(f"{', '.join(paths)} has no times of {LINEAR} or {DECODE}", HINT)
    return points


def points_of(runs: Iterable[Run]) -> Points:
    """Return the least times in *runs* of records with the axes of `linear` or `decode`."""
    linear: dict[LinearPoint, float] = {}
    decode: dict[DecodePoint, float] = {}
    devices = []
    for run in runs:
        devices.append((run.header.device.name, run.header.device.sm_count))
        for record in run.records:
            if record.status != "ok" or record.samples is None or record.samples.median_s <= 0:
                continue
            spent = record.samples.median_s
            if (point := _linear_point(record)) is not None:
                linear[point] = min(spent, linear.get(point, math.inf))
            if (at := _decode_point(record)) is not None:
                decode[at] = min(spent, decode.get(at, math.inf))
    return Points(linear, decode, tuple(dict.fromkeys(devices)))


def _sizes(record: Record, *names: str, **defaults: int) -> tuple[int, ...] | None:
    """Return the axes *names* of the case, then *defaults*; None unless all are positive."""
    axes = {**defaults, **record.case.point, **record.case.options}
    sizes = [axes.get(name) for name in (*names, *defaults)]
    return tuple(s for s in sizes if type(s) is int and s > 0) if all(sizes) else None


def _linear_point(record: Record) -> LinearPoint | None:
    case = record.case
    sizes = _sizes(record, "m", "n", "k") if case.op == LINEAR else None
    if sizes is None or len(sizes) != 3:
        return None
    axes = {**case.point, **case.options}
    group = axes.get("group")
    weights = str(axes.get("weights", axes.get("dtype", "")))
    return LinearPoint(weights, group if type(group) is int else 0, *sizes)


def _decode_point(record: Record) -> DecodePoint | None:
    if record.case.op != DECODE:
        return None
    sizes = _sizes(record, "batch", "kv", "heads", "head_dim", gqa=1, queries=1)
    if sizes is None or len(sizes) != 6:
        return None
    batch, kv, heads, width, gqa, queries = sizes
    cache = str(record.case.point.get("dtype", ""))
    return DecodePoint(cache, heads, max(1, heads // gqa), width, queries, batch, kv)


class Ratio(NamedTuple):
    """The logarithm of a ratio, and whether measured sizes surround the point."""

    log_ratio: float
    inside: bool


Curve = Mapping[float, Ratio]  # by the logarithm of a size


def interpolate(curve: Curve, size: float) -> Ratio:
    """Return the ratio at *size*: between its neighbours on *curve*, or that of the nearest end."""
    at = math.log(size)
    below = max((x for x in curve if x <= at + 1e-9), default=None)
    above = min((x for x in curve if x >= at - 1e-9), default=None)
    if below is None or above is None:
        end = above if below is None else below
        assert end is not None
        return Ratio(curve[end].log_ratio, False)
    low, high = curve[below], curve[above]
    share = (at - below) / (above - below) if above > below else 0.0
    mixed = low.log_ratio + (high.log_ratio - low.log_ratio) * share
    return Ratio(mixed, low.inside and high.inside)


@dataclass(frozen=True)
class MeasuredTimes:
    """The times at *points*, with the roofs and the formats to which they are compared."""

    points: Points
    roofs: Roofs
    formats: Formats

    def linear(self, linear: Linear, weights: str, tokens: int) -> Estimate | None:
        """Return the time of one layer of *linear* over *tokens* tokens; None if no layer with
        such weights was measured."""
        shapes = self._linears.get(weights)
        if not shapes:
            return None
        n, k = linear.outputs, linear.inputs
        near: dict[float, tuple[int, int]] = {}
        for shape in sorted(shapes, key=lambda s: abs(math.log(s[0] / n))):
            near.setdefault(math.log(shape[0] * shape[1]), shape)  # the most alike of a size
        by_size = {size: interpolate(shapes[shape], tokens) for size, shape in near.items()}
        looked_up = interpolate(by_size, n * k)
        beyond = (
            "" if looked_up.inside else f"linear with m {tokens:,}, k {k:,}, n {n:,}, {weights}"
        )
        return Estimate(
            math.exp(looked_up.log_ratio) * self._linear_roof(weights, tokens, n, k), beyond
        )

    def decode(self, model: Model, cache: str, point: tuple[int, float, int]) -> Estimate | None:
        """Return the time of one layer's attention at *point*: sequences, cached tokens of each,
        new tokens of each; None if no attention with such a cache was measured."""
        batch, kv, queries = point
        at = DecodePoint(
            cache, model.heads, model.kv_heads, model.head_width, queries, batch, max(1.0, kv)
        )
        known = [shape for shape in self._decodes if shape[0] == cache]
        if not known:
            return None
        shape = min(known, key=lambda other: _distance(other, at[:5]))
        by_batch = {b: interpolate(curve, at.kv) for b, curve in self._decodes[shape].items()}
        looked_up = interpolate(by_batch, batch)
        inside = looked_up.inside and shape[2:] == at[2:5]
        beyond = f"decode of {batch:,} × {kv:,.0f} tokens, {at.kv_heads} heads of {at.head_width}"
        spent = math.exp(looked_up.log_ratio) * self._decode_roof(at)
        return Estimate(spent, "" if inside else beyond)

    @functools.cached_property
    def _linears(self) -> dict[str, dict[tuple[int, int], dict[float, Ratio]]]:
        """Ratios by the format of the weights, (n, k), and the logarithm of m."""
        known: dict[str, dict[tuple[int, int], dict[float, Ratio]]] = {}
        for p, spent in self.points.linear.items():
            if p.weights == "int4" and p.group not in (0, self.formats.group):
                continue
            ratio = math.log(spent / self._linear_roof(p.weights, p.m, p.n, p.k))
            known.setdefault(p.weights, {}).setdefault((p.n, p.k), {})[math.log(p.m)] = Ratio(
                ratio, True
            )
        return known

    @functools.cached_property
    def _decodes(self) -> dict[tuple[str, int, int, int, int], dict[float, dict[float, Ratio]]]:
        """Ratios by the shape of the heads, and the logarithms of batch and cached tokens."""
        known: dict[tuple[str, int, int, int, int], dict[float, dict[float, Ratio]]] = {}
        for p, spent in self.points.decode.items():
            ratio = math.log(spent / self._decode_roof(p))
            curves = known.setdefault((p.cache, p.heads, p.kv_heads, p.head_width, p.queries), {})
            curves.setdefault(math.log(p.batch), {})[math.log(p.kv)] = Ratio(ratio, True)
        return known

    def _linear_roof(self, weights: str, m: int, n: int, k: int) -> float:
        own = weights == self.formats.weights
        rate = self.roofs.linear_rate if own else self.roofs.rate
        moved = n * k * (self.formats.weight_bits if own else 16) / 8
        return max(2 * m * n * k / rate, moved / self.roofs.bandwidth)

    def _decode_roof(self, p: DecodePoint) -> float:
        size = itemsize(p.cache)
        heads = (p.heads, p.kv_heads, p.head_width)
        work = decode_attention(p.batch, p.batch * p.kv, *heads, p.queries, size)
        return attention_seconds(work, self.roofs.rate, self.roofs.bandwidth)

    def remarks(self, peaks: Peaks) -> Iterator[str]:
        """Yield sentences about runs of another device than *peaks*, and about missing
        workloads."""
        for name, sms in self.points.devices:
            if not matches(peaks, name, sms):
                yield f"times were measured on {name} ({sms} SMs), and roofs are of {peaks.name}"
        yield "attention of prompts and experts have the roofs' times: no workload measures them"
        for op, known in ((LINEAR, self.points.linear), (DECODE, self.points.decode)):
            if not known:
                yield f"no times of the workload {op} are given: the roofs' are used"


def _distance(shape: tuple[str, int, int, int, int], wanted: tuple[object, ...]) -> float:
    """Return how far the heads of *shape* are from *wanted*; the heads of queries count least."""
    weights = (0.01, 1.0, 1.0, 1.0)
    pairs = zip(weights, shape[1:], wanted[1:], strict=True)
    return sum(w * abs(math.log(a / b)) for w, a, b in pairs if isinstance(b, int))
