"""Sum the values of each key, on the host and on the device: y[k] = Σ value[i] over key[i] = k.

One addition for each of n rows. `_frames.py` has the columns, and what the three scopes include.

- `numpy`: bincount; `numpy_threads`: bincount of a part in each thread, and the sum of the parts.
- `arrow`: Table.group_by, whose hash table does not use that the keys are small.
- `torch`: scatter_add_, by atomic additions on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpuperf.kernels._frames import (
    ROW_BYTES,
    SCOPE,
    VALUES,
    Array,
    Inputs,
    implementations,
    in_threads,
    make_inputs,
    table_of,
)

from gpuperf import Axis, Bytes, Cost, Flops, Point, Workload


def groupby_numpy(key: Array, value: Array, point: Point) -> list[Array]:
    """Return the sums by bincount, which adds in float64."""
    return [np.bincount(key, value, point.groups).astype(np.float32)]


def groupby_numpy_threads(key: Array, value: Array, point: Point) -> list[Array]:
    """Return the sums of the threads' sums."""
    parts = in_threads(lambda at: np.bincount(key[at], value[at], point.groups), point.n)
    return [np.sum(parts, axis=0, dtype=np.float64).astype(np.float32)]


def groupby_arrow(key: Array, value: Array, point: Point) -> list[Array]:
    """Return the sums by a hash table, in the order of the keys."""
    table = table_of(key, value).group_by("key").aggregate([("value", "sum")])
    sums = np.zeros(point.groups, np.float32)
    sums[table["key"].to_numpy()] = table["value_sum"].to_numpy()
    return [sums]


def groupby_torch(key: torch.Tensor, value: torch.Tensor, point: Point) -> list[torch.Tensor]:
    """Return the sums by scattered additions."""
    return [value.new_zeros(point.groups).scatter_add_(0, key, value)]


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Add the values of each key in float64."""
    value = inputs["value"].double()
    return value.new_zeros(point.groups).index_add_(0, inputs["key"], value)


def moved(point: Point) -> Bytes:
    """Return the bytes: the rows are read, a sum of each key is written."""
    return Bytes(ROW_BYTES * point.n, 4 * point.groups)


def cost(point: Point) -> Cost:
    """Return the cost: one addition for each row."""
    return Cost((Flops(point.n, "elementwise", "fp32"),), (moved(point),))


def terms(point: Point) -> int:
    """Return the rows of a large group."""
    mean = point.n / point.groups
    return 1 + int(mean + 6 * mean**0.5)


def inputs(point: Point, make: Any) -> Inputs:
    """Draw the keys and the values."""
    return make_inputs(point, make, point.groups)


GROUPBY = Workload(
    name="groupby",
    summary="sums by key, on host and device",
    formula="n FLOP; 12·n + 4·groups bytes",
    axes=(
        Axis("n", 2**24, "rows", main=True),
        Axis("groups", 1000, "different keys"),
        SCOPE,
        VALUES,
    ),
    inputs=inputs,
    reference=reference,
    cost=cost,
    implementations=implementations(
        groupby_numpy, groupby_numpy_threads, groupby_arrow, groupby_torch, moved
    ),
    terms=terms,
    prepared=lambda point: ("key", "value"),  # copied to the host, or split from its rows
)
