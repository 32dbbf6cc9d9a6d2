"""Lay the tensors of a call's inputs out in shared memory, and map them there.

A tree of lists, tuples and dicts becomes a skeleton, which is plain JSON, and a list of tensors.
Tensors keep their strides if they are dense. Each begins at a multiple of 64 bytes, as torch's own.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpuperf.errors import CannotMeasure
from gpuperf.judge.inside.device_memory import is_device, opened
from gpuperf.judge.plan import LARGEST_SPREAD
from gpuperf.judge.protocol import Layout, TensorSpec
from gpuperf.measure.result_tensors import overlaps_itself

ALIGNMENT, PAGE = 64, 4096
CPU = torch.device("cpu")
SIMPLE = (type(None), bool, int, float, str)


def dtype_of(name: str) -> torch.dtype:
    """Return torch's dtype of this name. Raises: CannotMeasure for another name."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise CannotMeasure(f"torch has no dtype {name[:40]!r}")
    return dtype


def take_apart(tree: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the skeleton of *tree*, and append its tensors to *tensors*. Raises: CannotMeasure."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree.detach())
        return ["tensor", len(tensors) - 1]
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return [kind, [take_apart(item, tensors) for item in tree]]
    if isinstance(tree, dict) and all(isinstance(key, str) for key in tree):
        return ["dict", {key: take_apart(value, tensors) for key, value in tree.items()}]
    if isinstance(tree, torch.dtype):
        return ["dtype", str(tree).removeprefix("torch.")]
    if isinstance(tree, SIMPLE):
        return ["value", tree]
    raise CannotMeasure(f"an input is a {type(tree).__name__}, which the judge cannot share")


def put_together(skeleton: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Return the tree of a *skeleton* with *tensors*."""
    kind, content = skeleton
    if kind == "tensor":
        return tensors[content]
    if kind in ("list", "tuple"):
        items = [put_together(item, tensors) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {key: put_together(value, tensors) for key, value in content.items()}
    return dtype_of(content) if kind == "dtype" else content


def lay_out(tree: Any) -> Layout:
    """Return the layout of *tree*. Raises: CannotMeasure for what cannot be shared."""
    tensors: list[torch.Tensor] = []
    skeleton = take_apart(tree, tensors)
    specs, end = [], 0
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise CannotMeasure("an input is no dense tensor")
        spec = spec_of(tensor, end)
        specs.append(spec)
        end += -(-spec.bytes // ALIGNMENT) * ALIGNMENT
    return Layout(skeleton, tuple(specs), max(PAGE, -(-end // PAGE) * PAGE))


def spec_of(tensor: torch.Tensor, offset: int = 0) -> TensorSpec:
    """Return the specification of *tensor* at *offset*, with its strides if it is dense."""
    strides = tensor.stride()
    if not _is_dense(tensor):
        strides = torch.empty(tensor.shape, dtype=torch.uint8, device="meta").stride()
    name = str(tensor.dtype).removeprefix("torch.")
    size = tensor.numel() * tensor.element_size()
    return TensorSpec(tuple(tensor.shape), tuple(strides), name, offset, size)


def is_scattered(tensor: torch.Tensor) -> bool:
    """Return whether *tensor* has elements at one address, or far apart."""
    if overlaps_itself(tensor):
        return True
    axes = zip(tensor.stride(), tensor.shape, strict=True)
    extent = 1 + sum(stride * (size - 1) for stride, size in axes)
    return bool(extent > LARGEST_SPREAD * max(tensor.numel(), 64 // tensor.element_size()))


def _is_dense(tensor: torch.Tensor) -> bool:
    reach = 1
    axes = zip(tensor.stride(), tensor.shape, strict=True)
    for stride, size in sorted((stride, size) for stride, size in axes if size > 1):
        if stride != reach:
            return False
        reach *= size
    return True


@dataclass
class Slots:
    """A file of slots in memory, mapped: `tensors(slot)` are those of a layout there."""

    layout: Layout
    memory: torch.Tensor

    @classmethod
    def open(cls, place: str, layout: Layout, count: int, device: torch.device = CPU) -> Slots:
        """Map *count* slots of the file *place*, or open those in the memory of *device*."""
        size = layout.size * count
        if is_device(place):
            return cls(layout, opened(place, size, device))
        return cls(layout, map_file(place, size))

    def part(self, slot: int) -> torch.Tensor:
        """Return the bytes of *slot*."""
        return self.memory[slot * self.layout.size : (slot + 1) * self.layout.size]

    def tensors(self, slot: int) -> list[torch.Tensor]:
        """Return the tensors of *slot*, which share its memory."""
        return [view_of(self.memory, spec, slot * self.layout.size) for spec in self.layout.tensors]

    def write(self, slot: int, tensors: Sequence[torch.Tensor]) -> None:
        """Copy *tensors* into *slot*."""
        for target, source in zip(self.tensors(slot), tensors, strict=True):
            target.copy_(source)


def map_file(path: str, size: int) -> torch.Tensor:
    """Return a file of *size* bytes as a tensor; writes go to the file. Raises: CannotMeasure."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise CannotMeasure(f"{path} cannot be opened: {error.strerror}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            raise CannotMeasure(f"{path} is not a regular file of {size} bytes")
        return torch.frombuffer(mmap.mmap(handle, size), dtype=torch.uint8)
    finally:
        os.close(handle)


def view_of(memory: torch.Tensor, spec: TensorSpec, base: int) -> torch.Tensor:
    """Return the tensor of *spec* in *memory*, where its slot begins at byte *base*."""
    dtype = dtype_of(spec.dtype)
    begin = base + spec.offset
    if not spec.bytes:
        return torch.empty(spec.shape, dtype=dtype, device=memory.device)
    return memory[begin : begin + spec.bytes].view(dtype).as_strided(spec.shape, spec.strides)
