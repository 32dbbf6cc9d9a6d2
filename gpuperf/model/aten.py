"""What was called: an operator of PyTorch with its tensors, whoever saw it?

A dispatch mode sees outputs and storages too; a trace of torch.profiler knows inputs only. Both
become a `Call`, so that one accounting serves a running program and a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gpuperf.units import itemsize

MOST_SIZE = 2**62
# Bytes an element of what operators take beside the dtypes that are computed in.
WIDTHS = {
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
# Short names by what torch (`str(dtype)`, without `torch.`) and what a Kineto trace ("Input type")
# call them.
DTYPES = {
    "float32": "fp32",
    "float": "fp32",
    "float64": "fp64",
    "double": "fp64",
    "float16": "fp16",
    "c10::Half": "fp16",
    "bfloat16": "bf16",
    "c10::BFloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "c10::Float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "c10::Float8_e5m2": "fp8",
    "int64": "int64",
    "long int": "int64",
    "long": "int64",
    "int32": "int32",
    "int": "int32",
    "int16": "int16",
    "short int": "int16",
    "int8": "int8",
    "signed char": "int8",
    "uint8": "uint8",
    "unsigned char": "uint8",
    "bool": "bool",
    "complex64": "complex64",
    "c10::complex<float>": "complex64",
    "complex128": "complex128",
    "c10::complex<double>": "complex128",
}


@dataclass(frozen=True)
class Tensor:
    """Shape (elements), dtype by its short name (`bf16`, `int64`), strides in elements (empty:
    contiguous, or unknown), which storage it lies in (0: unknown), and at which element of it it
    begins (None: unknown)."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] = ()
    storage: int = 0
    offset: int | None = None

    def __post_init__(self) -> None:
        if any(not 0 <= n <= MOST_SIZE for n in self.shape):
            raise ValueError(f"a tensor of shape {str(self.shape)[:60]} is in no memory")

    @cached_property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @cached_property
    def distinct(self) -> int:
        """Elements in memory: an expanded axis (stride 0) holds one."""
        if len(self.strides) != len(self.shape) or not self.size:
            return self.size
        pairs = zip(self.shape, self.strides, strict=True)
        return math.prod(n for n, stride in pairs if stride)

    @property
    def place(self) -> tuple[int, int, str, tuple[tuple[int, int], ...]] | None:
        """The same for tensors of the very same elements, in whatever order; None: nobody knows.

        q, k and v cut out of one projection are alike but for their offset: without it, none is
        taken for another.
        """
        if not self.storage or self.offset is None:
            return None
        strides, dense = self.strides, 1
        if len(strides) != len(self.shape):
            strides = ()
            for n in reversed(self.shape):
                strides, dense = (dense, *strides), dense * n
        axes = zip(self.shape, strides, strict=True)
        held = tuple(sorted((at, n) for n, at in axes if n > 1 and at))
        return self.storage, self.offset, self.dtype, held

    @property
    def bytes(self) -> int:
        """Of the elements in memory. Raises: ValueError for an unknown dtype."""
        width = WIDTHS.get(self.dtype)
        return self.distinct * (itemsize(self.dtype) if width is None else width)


@dataclass(frozen=True)
class Call:
    """One call of *name* (`aten::mm`).

    `inputs` has an entry an argument, in the schema's order: the tensors in it, one, several, or
    none. `concrete` has the others as text (`'[1, 1]'`, `'True'`, `''` where unknown or a tensor).
    `outputs` are its results, and empty where nobody saw them.
    """

    name: str
    inputs: tuple[tuple[Tensor, ...], ...] = ()
    concrete: tuple[str, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors among the arguments, in order."""
        return tuple(tensor for argument in self.inputs for tensor in argument)
