"""Time an operator on a frame of two columns three ways, on the host and on the device.

A frame has the columns `key` (int64) and `value` (fp32) of n elements. `scope` says what a call
includes:

- `kernel`: the operator alone. Columns and results are in the memory of what computes: DRAM of the
  host for NumPy and pyarrow, DRAM of the device for torch.
- `copied`: columns and results are on the host. For torch, both cross the link, by pinned memory.
- `end-to-end`: n rows of 12 bytes are on the host, and are split into columns first. The call
  returns when the results are on the host.

A sweep has all three: a speed-up of the kernel alone says nothing of a table that is on the host.
Calls of the host launch nothing on a GPU: `--timer wall` times both there by one clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from gpuperf import Axis, Bytes, Implementation, Point, Work

Inputs = Mapping[str, torch.Tensor]
Array = Any  # numpy.ndarray
Call = Callable[[], tuple[torch.Tensor, ...]]
OnHost = Callable[[Array, Array, Point], Sequence[Array]]
OnDevice = Callable[[torch.Tensor, torch.Tensor, Point], Sequence[torch.Tensor]]

SCOPES = ("kernel", "copied", "end-to-end")
SCOPE = Axis("scope", "kernel", "what a call includes", choices=SCOPES, swept=True)
VALUES = Axis("dtype", "fp32", "dtype of the values", choices=("fp32",))
NAMES = ("key", "value")
ROW = np.dtype([("key", np.int64), ("value", np.float32)])
ROW_BYTES = ROW.itemsize


class HostFrame:
    """The inputs in memory of the host, pinned if they are on a GPU, renewed after they changed."""

    def __init__(self, inputs: Inputs, point: Point) -> None:
        self._inputs = [inputs[name] for name in NAMES]
        self.columns = self._inputs
        if self._inputs[0].is_cuda:
            self.columns = [torch.empty_like(x, device="cpu").pin_memory() for x in self._inputs]
        self._rows = np.empty(point.n if point.scope == "end-to-end" else 0, ROW)
        self._versions: list[int] = []

    def arrays(self) -> list[Array]:
        """Return the columns as arrays."""
        self._renew()
        return [column.numpy() for column in self.columns]

    def split(self, into: Sequence[Array] | None = None) -> Sequence[Array]:
        """Return the columns of the rows, in new memory or *into* given arrays."""
        self._renew()
        into = into or [np.empty(len(self._rows), ROW[name]) for name in NAMES]
        for name, column in zip(NAMES, into, strict=True):
            np.copyto(column, self._rows[name])
        return into

    def _renew(self) -> None:
        if self._versions == (versions := [x._version for x in self._inputs]):
            return
        for name, x, column in zip(NAMES, self._inputs, self.columns, strict=True):
            if column is not x:
                column.copy_(x)
            if len(self._rows):
                self._rows[name] = column.numpy()
        self._versions = versions


def on_host(operate: OnHost) -> Callable[[Inputs, Point, object], Call]:
    """Return the build of *operate*(key, value, point), which takes and returns arrays."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        frame = HostFrame(inputs, point)
        begin = frame.split if point.scope == "end-to-end" else frame.arrays

        def call() -> tuple[torch.Tensor, ...]:
            key, value = begin()
            return tuple(torch.from_numpy(y) for y in operate(key, value, point))

        return call

    return build


def on_device(operate: OnDevice) -> Callable[[Inputs, Point, object], Call]:
    """Return the build of *operate*(key, value, point), which takes and returns tensors."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        key, value = (inputs[name] for name in NAMES)
        if point.scope == "kernel":
            return lambda: tuple(operate(key, value, point))
        frame = HostFrame(inputs, point)
        here = torch.empty_like(key), torch.empty_like(value)
        staged = [torch.empty_like(x, device="cpu") for x in here]
        if key.is_cuda:
            staged = [x.pin_memory() for x in staged]
        kept: dict[int, torch.Tensor] = {}
        splits = point.scope == "end-to-end"
        columns = staged if splits else frame.columns

        def call() -> tuple[torch.Tensor, ...]:
            if splits:
                frame.split([x.numpy() for x in staged])
            else:
                frame.arrays()
            for x, source in zip(here, columns, strict=True):
                x.copy_(source, non_blocking=True)
            results = operate(here[0], here[1], point)
            results = tuple(to_host(y, i, kept) for i, y in enumerate(results))
            if splits and key.is_cuda:  # the frame is built, and the next call reuses `staged`
                torch.cuda.current_stream().synchronize()
            return results

        return call

    return build


def to_host(y: torch.Tensor, index: int, kept: dict[int, torch.Tensor]) -> torch.Tensor:
    """Return *y* in pinned memory that is *kept* for the result *index*; on a CPU, y itself."""
    if not y.is_cuda:
        return y
    if index not in kept or len(kept[index]) < len(y):
        kept[index] = torch.empty(len(y), dtype=y.dtype, pin_memory=True)
    return kept[index][: len(y)].copy_(y, non_blocking=True)


@cache
def pool() -> ThreadPoolExecutor:
    """Return a thread for each processor of this process."""
    return ThreadPoolExecutor(threads())


def threads() -> int:
    """Return the processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def in_threads(work: Callable[[slice], Any], n: int) -> list[Any]:
    """Return what *work* returns for each part of n elements, one part a thread."""
    edges = np.linspace(0, n, threads() + 1).astype(int).tolist()
    parts = [slice(*edge) for edge in pairwise(edges)]
    return list(pool().map(work, parts))


def lacks_pyarrow(point: Point, device: Any) -> str | None:
    """Return why there is no pyarrow, or None where there is one."""
    try:
        import pyarrow.compute  # noqa: F401
    except ImportError:
        return "pyarrow is not installed"
    return None


def lacks_link(point: Point, device: Any) -> str | None:
    """Return why nothing is copied, or None where there is a link."""
    alone = device.kind == "cpu" and point.scope == "copied"
    return "a CPU has no link to itself" if alone else None


def work_of(point: Point, moved: Bytes) -> Work:
    """Return the work of torch: *moved*, and the columns and results that cross the link."""
    if point.scope == "kernel":
        return Work(bytes=(moved,))
    columns, results = ROW_BYTES * point.n, moved.written
    link = Bytes(columns, results, channel="host")
    return Work(bytes=(Bytes(moved.read + results, moved.written + columns), link))


def implementations(
    numpy: OnHost, numpy_threads: OnHost, arrow: OnHost, device: OnDevice, moved: Any
) -> tuple[Implementation, ...]:
    """Return the implementations of an operator that moves *moved*(point) bytes."""
    return (
        Implementation("numpy", on_host(numpy), "NumPy, one thread of the host", on_host=host),
        Implementation(
            "numpy_threads", on_host(numpy_threads), "NumPy in a thread a processor", on_host=host
        ),
        Implementation(
            "arrow", on_host(arrow), "pyarrow, threads of its own", lacks_pyarrow, on_host=host
        ),
        Implementation(
            "torch",
            on_device(device),
            "torch, on the device",
            lacks_link,
            lambda point: work_of(point, moved(point)),
            on_host=lambda point: point.scope != "kernel",
        ),
    )


def host(point: Point) -> bool:
    """Return that the result is in memory of the host, in every scope."""
    return True


def arrays_of(table: Any) -> list[Array]:
    """Return the columns of a table of pyarrow as arrays that can be written."""
    return [np.require(table[name].to_numpy(), requirements="W") for name in NAMES]


def table_of(key: Array, value: Array) -> Any:
    """Return a table of pyarrow over the columns, which are not copied."""
    import pyarrow as pa

    return pa.table({"key": key, "value": value})


def make_inputs(point: Point, make: Callable[..., torch.Tensor], below: int) -> Inputs:
    """Draw keys from 0 to *below* − 1, and values."""
    return {"key": make((point.n,), "int64", high=below), "value": make((point.n,), "fp32")}
