"""Define an operator call of PyTorch with its tensors.

A dispatch mode sees outputs and storages too; a trace of torch.profiler has inputs only. Both
become a `Call`, so one accounting serves a running program and a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gpuperf.units import itemsize

MOST_SIZE = 2**62
# Bytes of an element of the dtypes that no arithmetic is counted in.
WIDTHS = dict(int64=8, int32=4, int16=2, uint8=1, bool=1, complex64=8, complex128=16)
# Short names of dtypes, by those of torch (`str(dtype)` without `torch.`) and of Kineto traces.
DTYPES = {
    name: short
    for short, names in {
        "fp32": "float32,float",
        "fp64": "float64,double",
        "fp16": "float16,c10::Half",
        "bf16": "bfloat16,c10::BFloat16",
        "fp8": "float8_e4m3fn,c10::Float8_e4m3fn,float8_e5m2,c10::Float8_e5m2",
        "int64": "int64,long int,long",
        "int32": "int32,int",
        "int16": "int16,short int",
        "int8": "int8,signed char",
        "uint8": "uint8,unsigned char",
        "bool": "bool",
        "complex64": "complex64,c10::complex<float>",
        "complex128": "complex128,c10::complex<double>",
    }.items()
    for name in names.split(",")
}


@dataclass(frozen=True)
class Tensor:
    """A tensor: its shape, the short name of its dtype (`bf16`, `int64`), its strides in elements
    (empty if contiguous or unknown), the id of its storage (0 if unknown), and the element of the
    storage at which it begins (None if unknown)."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] = ()
    storage: int = 0
    offset: int | None = None

    def __post_init__(self) -> None:
        if any(not 0 <= n <= MOST_SIZE for n in self.shape):
            raise ValueError(f"a tensor of shape {str(self.shape)[:60]} fits no memory")

    @cached_property
    def size(self) -> int:
        """Number of elements, the product of `shape`."""
        return math.prod(self.shape)

    @cached_property
    def distinct(self) -> int:
        """Number of elements in memory, where an expanded axis (stride 0) has one."""
        if len(self.strides) != len(self.shape) or not self.size:
            return self.size
        pairs = zip(self.shape, self.strides, strict=True)
        return math.prod(n for n, stride in pairs if stride)

    @cached_property
    def place(self) -> tuple[int, int, str, tuple[tuple[int, int], ...]] | None:
        """A key that tensors with the same elements in memory share, in any order of axes; None if
        it is unknown. q, k and v from one projection differ in their offset alone.
        """
        if not self.storage or self.offset is None:
            return None
        strides, dense = self.strides, 1
        if len(strides) != len(self.shape):
            strides = ()
            for n in reversed(self.shape):
                strides, dense = (dense, *strides), dense * n
        axes = zip(self.shape, strides, strict=True)
        layout = tuple(sorted((stride, n) for n, stride in axes if n > 1 and stride))
        return self.storage, self.offset, self.dtype, layout

    @property
    def bytes(self) -> int:
        """Bytes of the elements in memory. Raises: ValueError for an unknown dtype."""
        width = WIDTHS.get(self.dtype)
        return self.distinct * (itemsize(self.dtype) if width is None else width)


@dataclass(frozen=True)
class Call:
    """One call of the operator *name* (`aten::mm`).

    `inputs` has the tensors of each argument, in the order of the operator's schema. `concrete` has
    the other arguments as text (`'[1, 1]'`, `'True'`; `''` for a tensor or an unknown value).
    `outputs` are the results, empty if unknown.
    """

    name: str
    inputs: tuple[tuple[Tensor, ...], ...] = ()
    concrete: tuple[str, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors among the arguments, in order."""
        return tuple(tensor for argument in self.inputs for tensor in argument)
