"""Read the arguments of operators from a trace.

Kineto writes four lists of one length: `Input Dims` (a tensor's shape; a list of shapes for a list
of tensors; empty for the rest), `Input type` (C++'s name of the dtype; `TensorList`, `Scalar`,
`ScalarList`, or nothing), `Input Strides` and `Concrete Inputs` (scalars as text). It leaves out
the dtypes of tensors in a list, texts (`approximate="tanh"`), optional tensors in a list (those of
`aten::index`), and all outputs.
https://github.com/pytorch/pytorch/blob/main/torch/csrc/profiler/util.cpp
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from gpuperf.model.aten import DTYPES, Call, Tensor
from gpuperf.profile.trace.columns import legible

MOST_CALLS = 200_000  # different calls that are kept with their shapes: about 300 MB
MOST_BARE = 200_000  # different names that are kept without shapes
MOST_TENSORS = 100_000  # tensors of a call; a fused optimizer takes five lists of all parameters

KEYS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
# As GCC and Clang name the dtypes that `DTYPES` does not have.
MORE_DTYPES = {
    "short unsigned int": "uint16",
    "unsigned short": "uint16",
    "unsigned int": "uint32",
    "long unsigned int": "uint64",
    "unsigned long": "uint64",
}


class Calls:
    """A list of the different calls of operators in a trace: by name, tensors and scalars.

    `shapes` is true if any call has shapes; `doubtful` counts calls that are kept by name only,
    since their shapes are unreadable or too many.
    """

    def __init__(self) -> None:
        self.shapes = False
        self.doubtful: Counter[str] = Counter()
        self._index: dict[bytes | str, int] = {}
        self._calls: dict[Call, int] = {}
        self._tensors: dict[Tensor, Tensor] = {}
        self._full = 0

    def calls(self) -> tuple[Call, ...]:
        return tuple(self._calls)

    def index(self, name: str, args: dict[str, Any]) -> int:
        """Return the index of the call of *name* with Kineto's *args*, which is added if new."""
        dims = args.get("Input Dims")
        if dims is None:
            return self._bare(name)
        lists = [args.get(key) for key in KEYS]
        key = blake2b(repr((name, lists)).encode("utf-8", "replace"), digest_size=16).digest()
        place = self._index.get(key)
        if place is None:
            place = self._index[key] = self._new(name, lists)
        return place

    def _bare(self, name: str) -> int:
        place = self._index.get(name)
        if place is None:
            if len(self._index) > MOST_CALLS + MOST_BARE:
                raise ValueError(f"it has the last of over {MOST_BARE:,} different names")
            place = self._index[name] = self._keep(Call(legible(name)))
        return place

    def _keep(self, call: Call) -> int:
        return self._calls.setdefault(call, len(self._calls))

    def _new(self, name: str, lists: Sequence[Any]) -> int:
        self.shapes = True
        if self._full >= MOST_CALLS:
            self.doubtful["operators with too many shapes"] += 1
            return self._bare(name)
        try:
            call = self._call(name, *lists)
        except (TypeError, ValueError):
            self.doubtful["operators with unreadable shapes"] += 1
            return self._bare(name)
        self._full += 1
        return self._keep(call)

    def _call(self, name: str, dims: Any, types: Any, strides: Any, concrete: Any) -> Call:
        """Return the call of four lists of Kineto. Raises: TypeError, ValueError if malformed."""
        types, strides, concrete = (
            given if isinstance(given, list) and len(given) == len(dims) else [None] * len(dims)
            for given in (types, strides, concrete)
        )
        if sum(len(shape) for shape in dims) + len(dims) > MOST_TENSORS:
            raise ValueError("too many tensors")
        inputs = tuple(map(self._argument, dims, types, strides))
        return Call(legible(name), inputs, tuple(legible(_text(value)) for value in concrete))

    def _argument(self, dims: list[Any], kind: Any, strides: Any) -> tuple[Tensor, ...]:
        if not isinstance(dims, list):
            raise TypeError("a shape is a list")
        strides = strides if isinstance(strides, list) and len(strides) == len(dims) else None
        if dims and isinstance(dims[0], list):
            return tuple(
                self._tensor(shape, tensor_strides, "")
                for shape, tensor_strides in zip(dims, strides or [[]] * len(dims), strict=True)
            )
        dtype = DTYPES.get(kind) or MORE_DTYPES.get(kind)
        if dtype is None and not dims and not str(kind).startswith("c10::"):
            return ()  # a scalar, a text, or nothing
        return (self._tensor(dims, strides or [], dtype or legible(_text(kind))),)

    def _tensor(self, shape: list[int], strides: list[int], dtype: str) -> Tensor:
        if not all(type(n) is int for n in (*shape, *strides)):
            raise TypeError("a shape is of integers")
        gaps = () if _is_contiguous(shape, strides) else tuple(strides)
        tensor = Tensor(tuple(shape), dtype, gaps)
        return self._tensors.setdefault(tensor, tensor)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _is_contiguous(shape: list[int], strides: list[int]) -> bool:
    """Return whether elements lie row by row, without gaps; an axis of one needs no stride."""
    if len(shape) != len(strides) or 0 in shape:
        return True
    expected = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True
