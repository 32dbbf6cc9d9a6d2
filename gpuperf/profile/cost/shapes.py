"""Infer the shape and dtype of results that were not recorded, by the rules of torch.

The rules are those of broadcasting, type promotion (a tensor without dimensions decides only the
kind of dtype, as a number does), reductions, and windows of convolutions and pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuperf.model.aten import Tensor
from gpuperf.profile.cost.arguments import Unreadable

INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("fp8", "bf16", "fp16", "fp32", "fp64")
COMPLEX = ("complex64", "complex128")
KINDS = (("bool",), INTEGERS, FLOATS, COMPLEX)


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape to which *shapes* broadcast. Raises: Unreadable if they do not."""
    rank = max((len(shape) for shape in shapes), default=0)
    common = []
    for at in range(-rank, 0):
        sizes = {shape[at] for shape in shapes if len(shape) >= -at} - {1}
        if len(sizes) > 1:
            raise Unreadable(f"sizes {sorted(sizes)} do not broadcast")
        common.append(sizes.pop() if sizes else 1)
    return tuple(common)


def common_shape(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """Broadcast the shapes of *tensors*. Raises: Unreadable if they do not."""
    return broadcast(*(tensor.shape for tensor in tensors))


def kind_of(dtype: str) -> int:
    """Return 0 for bool, 1 for integer, 2 for floating, 3 for complex. Raises: Unreadable."""
    for kind, members in enumerate(KINDS):
        if dtype in members:
            return kind
    raise Unreadable(f"the promotion of {dtype[:40]!r} is unknown")


def wider(a: str, b: str) -> str:
    """Return the dtype that two dtypes of one kind promote to."""
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    if {a, b} == {"bf16", "fp16"}:
        return "fp32"
    members = KINDS[kind_of(a)]
    return members[max(members.index(a), members.index(b))]


def number_dtype(text: str) -> str:
    """Return the dtype of the number that *text* writes: bool, int64 or fp32."""
    if text in ("True", "False"):
        return "bool"
    return "int64" if text.lstrip("-").isdigit() else "fp32"


def promoted(tensors: Iterable[Tensor], numbers: Iterable[str] = ()) -> str:
    """Return the dtype in which *tensors*, and numbers as text, are computed.

    Raises: Unreadable for unknown dtypes, and if there are no operands.
    """
    # Tensors with dimensions decide first, then those without, then numbers.
    ranked = [(1 if tensor.shape else 0, tensor.dtype) for tensor in tensors]
    ranked += [(-1, number_dtype(text)) for text in numbers if text]
    if not ranked:
        raise Unreadable("there are no operands")
    result, kind = "", -1
    for rank in (1, 0, -1):
        # A lower rank decides only if its dtype is of a higher kind.
        higher = [d for r, d in ranked if r == rank and kind_of(d) > kind]
        top = max((kind_of(d) for d in higher), default=kind)
        for dtype in (d for d in higher if kind_of(d) == top):
            result = wider(result, dtype) if kind == top and result else dtype
            kind = top
    wide = any(dtype in ("fp64", "complex128") for _, dtype in ranked)
    return "complex128" if kind == 3 and wide else result


def axis(dim: int, rank: int) -> int:
    """Return dimension *dim* (−1 is the last) as 0 … rank − 1.

    Raises: Unreadable if it is out of range.
    """
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise Unreadable(f"dimension {dim} of {rank}")
    return dim % max(rank, 1)


def reduced(shape: Sequence[int], dims: Sequence[int] | None, keep: bool) -> tuple[int, ...]:
    """Return *shape* without the dimensions *dims* (None: all); with *keep* they have size 1."""
    gone = {axis(d, len(shape)) for d in dims} if dims is not None else set(range(len(shape)))
    return tuple(1 if i in gone else n for i, n in enumerate(shape) if keep or i not in gone)


def replaced(shape: Sequence[int], at: int, *sizes: int) -> tuple[int, ...]:
    """Return *shape* with *sizes* in place of the size of axis *at*."""
    return (*shape[:at], *sizes, *shape[at + 1 :])


def spread(values: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return *rank* values: *values*, or its single value for each axis.

    Raises: Unreadable for another number of values.
    """
    if len(values) not in (1, rank):
        raise Unreadable(f"{len(values)} values for {rank} axes")
    return tuple(values) if len(values) == rank else tuple(values) * rank


def windows(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool = False
) -> int:
    """Return the number of windows of *kernel* elements along an axis of *size* elements.

    The formula is that of torch.nn.Conv2d and torch.nn.MaxPool2d ("Shape").
    """
    if min(size, kernel, stride, dilation) < 1 or padding < 0:
        raise Unreadable("an axis, a kernel, a stride and a dilation are at least 1")
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-room // stride) if ceil else room // stride) + 1
    # The last window must begin inside the input or its left padding.
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count
