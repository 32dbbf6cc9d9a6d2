"""Keep the rows of a frame whose key is below a limit, on the host and on the device.

Keys are from 0 to 99, and the rows with key < percent are kept, in their order; the cost has their
expected number. `_frames.py` has the columns, and what the three scopes include.

- `numpy`: a mask, and the columns indexed by it; `numpy_threads`: a part in each thread.
- `arrow`: Table.filter by an expression.
- `torch`: the positions of the mask, and the columns indexed by them. torch waits for the number of
  rows before it allocates the result.
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
    arrays_of,
    implementations,
    in_threads,
    make_inputs,
    table_of,
)

from gpuperf import Axis, Bytes, Cost, Point, Workload

KEYS = 100


def filter_numpy(key: Array, value: Array, point: Point) -> list[Array]:
    """Return the rows that a mask keeps."""
    kept = key < point.percent
    return [key[kept], value[kept]]


def filter_numpy_threads(key: Array, value: Array, point: Point) -> list[Array]:
    """Return the rows that each thread keeps, one part after another."""
    parts = in_threads(lambda at: filter_numpy(key[at], value[at], point), point.n)
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def filter_arrow(key: Array, value: Array, point: Point) -> list[Array]:
    """Return the rows that pyarrow's expression keeps."""
    import pyarrow.compute as pc

    kept = table_of(key, value).filter(pc.field("key") < point.percent)
    columns: list[Array] = arrays_of(kept)
    return columns


def filter_torch(key: torch.Tensor, value: torch.Tensor, point: Point) -> list[torch.Tensor]:
    """Return the rows at the positions of the mask."""
    kept = (key < point.percent).nonzero().view(-1)
    return [key[kept], value[kept]]


def reference(inputs: Inputs, point: Point) -> tuple[torch.Tensor, ...]:
    """Return the kept rows, values in float64."""
    kept = inputs["key"] < point.percent
    return inputs["key"][kept], inputs["value"].double()[kept]


def moved(point: Point) -> Bytes:
    """Return the bytes: all rows are read, the expected number of kept rows is written."""
    return Bytes(ROW_BYTES * point.n, ROW_BYTES * (point.n * min(point.percent, KEYS) // KEYS))


def inputs(point: Point, make: Any) -> Inputs:
    """Draw the keys and the values."""
    return make_inputs(point, make, KEYS)


FILTER = Workload(
    name="filter",
    summary="rows below a limit, on host and device",
    formula="12·n·(1 + percent/100) bytes",
    axes=(
        Axis("n", 2**24, "rows", main=True, minimum=KEYS),
        Axis("percent", 10, "rows that are kept, of 100"),
        SCOPE,
        VALUES,
    ),
    inputs=inputs,
    reference=reference,
    cost=lambda point: Cost(bytes=(moved(point),)),
    implementations=implementations(
        filter_numpy, filter_numpy_threads, filter_arrow, filter_torch, moved
    ),
    terms=lambda point: 1,
    prepared=lambda point: ("key", "value"),  # copied to the host, or split from its rows
)
