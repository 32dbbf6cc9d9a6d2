"""Of which shape and dtype is a result, where nobody saw it?

The rules are torch's: broadcasting, type promotion (a tensor without dimensions, like a number,
gives its kind of dtype only), reductions, windows of convolutions and pools.
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
    """The common shape. Raises: Unreadable where there is none."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for at in range(-rank, 0):
        sizes = {shape[at] for shape in shapes if len(shape) >= -at} - {1}
        if len(sizes) > 1:
            raise Unreadable(f"sizes {sorted(sizes)} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def kind_of(dtype: str) -> int:
    """bool, integer, floating, complex: 0 … 3. Raises: Unreadable for others."""
    for kind, members in enumerate(KINDS):
        if dtype in members:
            return kind
    raise Unreadable(f"nobody knows what {dtype[:40]!r} promotes to")


def wider(a: str, b: str) -> str:
    """The dtype that two of one kind promote to."""
    if {a, b} == {"uint8", "int8"}:
        return "int16"
    if {a, b} == {"bf16", "fp16"}:
        return "fp32"
    members = KINDS[kind_of(a)]
    return members[max(members.index(a), members.index(b))]


def promoted(tensors: Iterable[Tensor], numbers: Iterable[str] = ()) -> str:
    """The dtype that *tensors* and numbers, as text, are computed in.

    Raises: Unreadable for unknown dtypes, and where there is nothing.
    """
    ranked: list[tuple[int, str]] = []  # how much each counts: a dimension more than none
    for tensor in tensors:
        ranked.append((1 if tensor.shape else 0, tensor.dtype))
    for text in numbers:
        if text in ("True", "False"):
            ranked.append((-1, "bool"))
        elif text.lstrip("-").isdigit():
            ranked.append((-1, "int64"))
        elif text:
            ranked.append((-1, "fp32"))
    if not ranked:
        raise Unreadable("there is nothing to compute with")
    result, kind = "", -1
    for rank in (1, 0, -1):
        # What counts for less decides only where it is of a higher kind.
        higher = [d for r, d in ranked if r == rank and kind_of(d) > kind]
        top = max((kind_of(d) for d in higher), default=kind)
        for dtype in (d for d in higher if kind_of(d) == top):
            result = wider(result, dtype) if kind == top and result else dtype
            kind = top
    return complex_of(result, [d for _, d in ranked]) if kind == 3 else result


def complex_of(dtype: str, given: Sequence[str]) -> str:
    """complex128 where something is of 64 bits."""
    return "complex128" if "fp64" in given or "complex128" in given else dtype


def axis(dim: int, rank: int) -> int:
    """0 … rank − 1 of a dimension counted from either end. Raises: Unreadable beyond."""
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise Unreadable(f"dimension {dim} of {rank}")
    return dim % max(rank, 1)


def reduced(shape: Sequence[int], dims: Sequence[int] | None, keep: bool) -> tuple[int, ...]:
    """*shape* without the reduced dimensions (None: all), or with 1 in their place."""
    gone = {axis(d, len(shape)) for d in dims} if dims is not None else set(range(len(shape)))
    return tuple(1 if i in gone else n for i, n in enumerate(shape) if keep or i not in gone)


def spread(values: Sequence[int], rank: int) -> tuple[int, ...]:
    """`[1]` for each of *rank* axes. Raises: Unreadable for another count."""
    if len(values) not in (1, rank):
        raise Unreadable(f"{len(values)} values for {rank} axes")
    return tuple(values) if len(values) == rank else tuple(values) * rank


def windows(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool = False
) -> int:
    """How many windows fit along an axis (torch.nn.Conv2d, torch.nn.MaxPool2d: Shape)."""
    if min(size, kernel, stride, dilation) < 1 or padding < 0:
        raise Unreadable("an axis, a kernel, a stride and a dilation are at least 1")
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-room // stride) if ceil else room // stride) + 1
    # The last window must begin inside the input or its left padding.
    return count - 1 if ceil and (count - 1) * stride >= size + padding else count
