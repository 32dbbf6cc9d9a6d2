"""Sort the rows of a frame by their key, on the host and on the device.

Keys are random in 62 bits, and rows with equal keys keep their order. The cost reads and writes the
rows once. `_frames.py` has the columns, and what the three scopes include.

- `numpy`: argsort, and the columns in its order; `numpy_threads`: each thread takes the rows with
  keys between two limits, which a sample of the keys gives, and sorts them.
- `arrow`: Table.sort_by, and new columns in its order.
- `torch`: sort, which on a GPU is a radix sort, and the values in its order.
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
    pool,
    table_of,
    threads,
)

from gpuperf import Axis, Bytes, Cost, Point, Workload

KEYS = 2**62
SAMPLED = 64  # keys for each limit between two threads


def sort_numpy(key: Array, value: Array, point: Point) -> list[Array]:
    """Return the rows in the order of a stable argsort."""
    order = np.argsort(key, kind="stable")
    return [key[order], value[order]]


def sort_numpy_threads(key: Array, value: Array, point: Point) -> list[Array]:
    """Return the rows that the threads sorted, each between two limits."""
    sample = np.sort(key[:: max(1, point.n // (SAMPLED * threads()))])
    limits = [0, *sample[np.linspace(0, len(sample), threads() + 1)[1:-1].astype(int)], KEYS]

    def part(i: int) -> Array:
        between = np.flatnonzero((key >= limits[i]) & (key < limits[i + 1]))
        return between[np.argsort(key[between], kind="stable")]

    order = np.concatenate(list(pool().map(part, range(threads()))))
    result = [np.empty_like(key), np.empty_like(value)]

    def gather(at: slice) -> None:
        for column, ordered in zip((key, value), result, strict=True):
            ordered[at] = column[order[at]]

    in_threads(gather, point.n)
    return result


def sort_arrow(key: Array, value: Array, point: Point) -> list[Array]:
    """Return the rows in pyarrow's order, which is stable."""
    columns: list[Array] = arrays_of(table_of(key, value).sort_by("key"))
    return columns


def sort_torch(key: torch.Tensor, value: torch.Tensor, point: Point) -> list[torch.Tensor]:
    """Return the rows in the order of torch's stable sort."""
    ordered, order = torch.sort(key, stable=True)
    return [ordered, value[order]]


def reference(inputs: Inputs, point: Point) -> tuple[torch.Tensor, ...]:
    """Return the rows in the order of their keys, values in float64."""
    order = torch.argsort(inputs["key"], stable=True)
    return inputs["key"][order], inputs["value"].double()[order]


def moved(point: Point) -> Bytes:
    """Return the bytes: rows are read and written once."""
    return Bytes(ROW_BYTES * point.n, ROW_BYTES * point.n)


def inputs(point: Point, make: Any) -> Inputs:
    """Draw the keys and the values."""
    return make_inputs(point, make, KEYS)


SORT = Workload(
    name="sort",
    summary="rows by key, on host and device",
    formula="24·n bytes",
    axes=(Axis("n", 2**24, "rows", main=True), SCOPE, VALUES),
    inputs=inputs,
    reference=reference,
    cost=lambda point: Cost(bytes=(moved(point),)),
    implementations=implementations(sort_numpy, sort_numpy_threads, sort_arrow, sort_torch, moved),
    terms=lambda point: 1,
    prepared=lambda point: ("key", "value"),  # copied to the host, or split from its rows
)
