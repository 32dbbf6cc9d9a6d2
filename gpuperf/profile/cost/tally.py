"""Count FLOPs and bytes of an operator's call by the conventions that all formulas share.

A fused multiply-add is 2 FLOPs; a transcendental is one `special` FLOP; any other operation that
computes a floating-point number or compares two is one `elementwise` FLOP. Selections, copies and
conversions are none, and no integer operation is a FLOP. Every element of an input that is needed
is read once, and every element of an output is written once, however often a tensor is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpuperf.model.aten import Tensor
from gpuperf.model.cost import Bytes, Flops, Work
from gpuperf.profile.cost.arguments import Arguments, Unreadable

Kind = Literal[
    "matmul",
    "convolution",
    "attention",
    "normalisation",
    "softmax",
    "elementwise",
    "reduction",
    "embedding",
    "optimizer",
    "copy",
    "view",
    "random",
    "indexing",
    "communication",
    "unknown",
]
FLOATING = {"fp64", "fp32", "bf16", "fp16", "fp8"}
REAL = {"complex64": "fp32", "complex128": "fp64"}  # the dtype of a complex number's two parts
ACCUMULATE = {  # the dtype of sums; fp32 for all others
    "fp64": "fp64",
    **dict.fromkeys(("int8", "uint8", "int16", "int32"), "int32"),
    "int64": "int64",
}
NO_BYTES = Bytes(0, 0)


@dataclass(frozen=True)
class Tally:
    """FLOPs and bytes of one call: what its algorithm needs at least.

    `work` is set if the operator does more than that, `kind` if the call is not of the operator's
    usual kind; `known` is false if the FLOPs are not.
    """

    flops: tuple[Flops, ...] = ()
    moves: Bytes = NO_BYTES
    work: Work | None = None
    kind: Kind | None = None
    known: bool = True


Rule = Callable[[Arguments], Tally]  # counts FLOPs and bytes of a call
Rules = Mapping[str, tuple[Kind, Rule]]
Results = Iterable[Tensor] | Callable[[], Iterable[Tensor]]


def named(kind: Kind, rule: Rule, names: str) -> Rules:
    """Return a table with *rule* for each of *names*, which blanks separate."""
    return dict.fromkeys(names.split(), (kind, rule))


def memory(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of *tensors*, of which those at the same place count once.

    Raises: ValueError for an unknown dtype.
    """
    total, places = 0, set()
    for tensor in tensors:
        place = tensor.place
        if place is None or place not in places:
            total += tensor.bytes
            places.add(place)
    return total


def moved(read: Iterable[Tensor], written: Iterable[Tensor]) -> Bytes:
    """Return the bytes of the tensors *read* and *written*, each distinct one counted once."""
    return Bytes(memory(read), memory(written))


def results(args: Arguments, expected: Results) -> tuple[Tensor, ...]:
    """Return the recorded results of a call, or else those that are *expected*.

    *expected* may be a function that infers them. If it raises Unreadable the call has no results,
    and writes no bytes.
    """
    if args.call.outputs:
        return args.call.outputs
    try:
        return tuple(expected() if callable(expected) else expected)
    except Unreadable:
        return ()


def tally(
    args: Arguments, flops: tuple[Flops, ...], read: Iterable[Tensor], expected: Results
) -> Tally:
    """Return the counts of a call that has *flops*, reads *read* and writes its results."""
    return Tally(flops, moved(read, results(args, expected)))


def like(tensor: Tensor, dtype: str = "") -> Tensor:
    """Return a dense tensor of the same shape, in memory of its own."""
    return Tensor(tensor.shape, dtype or tensor.dtype)


def elements(tensor: Tensor, count: int) -> Tensor:
    """Return a tensor of *count* elements of the dtype of *tensor*."""
    return Tensor((count,), tensor.dtype)


def accumulated(dtype: str) -> str:
    """Return the dtype in which sums of *dtype* are kept."""
    return ACCUMULATE.get(dtype, "fp32")


def multiplied(count: int, dtype: str, tf32: bool = False) -> tuple[Flops, ...]:
    """Return the FLOPs of *count* multiply-adds of a matmul; a complex one is four real ones."""
    if dtype == "bool" or not count:
        return ()
    real = REAL.get(dtype, dtype)
    factor = 8 if dtype in REAL else 2
    unit = "tf32" if tf32 and dtype == "fp32" else real
    return (Flops(factor * count, "matmul", unit, accumulated(real)),)


def computed(
    count: int, dtype: str, plain: int = 0, special: int = 0, sums: bool = False
) -> tuple[Flops, ...]:
    """Return *plain* and *special* FLOPs for each of *count* elements; integers have none.

    A complex number counts as two real ones. *sums* says that the plain FLOPs accumulate, in
    `accumulated(dtype)`.
    """
    if dtype in REAL:
        count, dtype = 2 * count, REAL[dtype]
    if dtype not in FLOATING:
        return ()
    both = (
        Flops(plain * count, "elementwise", dtype, accumulated(dtype) if sums else ""),
        Flops(special * count, "special", dtype),
    )
    return tuple(flops for flops in both if flops.count)


def weight_gradients(
    args: Arguments,
    tensors: tuple[Tensor, Tensor, Tensor],
    products: int,
    channels: int,
    wanted: tuple[bool, ...],
) -> Tally:
    """Return the counts of the gradients of a layer with *tensors* dy, x and weight.

    *wanted* says which of dx, dweight and dbias are computed; each of the first two takes
    *products* multiply-adds, and the bias has *channels* elements.
    """
    dy, x, weight = tensors
    dx, dweight, dbias = wanted
    flops = multiplied(products * (dx + dweight), x.dtype, args.tf32)
    flops += computed(dy.size, dy.dtype, int(dbias))
    read = [t for t, needed in ((dy, any(wanted)), (weight, dx), (x, dweight)) if needed]
    made = [like(x), like(weight, x.dtype), Tensor((channels,), x.dtype)]
    return tally(args, flops, read, [t for t, asked in zip(made, wanted, strict=True) if asked])
