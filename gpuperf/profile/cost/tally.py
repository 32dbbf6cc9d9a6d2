"""What was counted of a call, and the few ways in which everything is counted.

FLOPs: a fused multiply-add is 2; a transcendental is one `special`; whatever else computes a
floating-point number or compares two is one `elementwise`; what selects, copies or converts is
none, and no integer is a FLOP. Bytes: every element of an input that is needed is read once, every
element of an output is written once, however often a tensor is passed.
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
REAL = {"complex64": "fp32", "complex128": "fp64"}  # what complex numbers are made of
SUMS = {
    "fp64": "fp64",
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
    "int32": "int32",
    "int64": "int64",
}
STILL = Bytes(0, 0)


@dataclass(frozen=True)
class Tally:
    """What one call needs; *work* where its operator does more, *kind* where the call shows it."""

    flops: tuple[Flops, ...] = ()
    moves: Bytes = STILL
    work: Work | None = None
    kind: Kind | None = None
    known: bool = True


Rule = Callable[[Arguments], Tally]
Rules = Mapping[str, tuple[Kind, Rule]]


def named(kind: Kind, rule: Rule, names: str) -> Rules:
    """The same rule for all of *names*."""
    return dict.fromkeys(names.split(), (kind, rule))


def memory(tensors: Iterable[Tensor]) -> int:
    """Bytes of the distinct elements of *tensors*. Raises: ValueError for an unknown dtype."""
    total, seen = 0, set()
    for tensor in tensors:
        place = tensor.place
        if place is None or place not in seen:
            total += tensor.bytes
            seen.add(place)
    return total


def moved(read: Iterable[Tensor], written: Iterable[Tensor]) -> Bytes:
    """*read* once, *written* once."""
    return Bytes(memory(read), memory(written))


def fresh(tensor: Tensor, dtype: str = "") -> Tensor:
    """A result like *tensor*, dense, in memory of its own."""
    return Tensor(tensor.shape, dtype or tensor.dtype)


def copies(tensor: Tensor, count: int, dtype: str = "") -> Tensor:
    """*count* elements of a tensor's dtype."""
    return Tensor((count,), dtype or tensor.dtype)


def inferred(make: Callable[[], Iterable[Tensor]]) -> tuple[Tensor, ...]:
    """The results that `make` infers; none where the call does not say: nothing is invented."""
    try:
        return tuple(make())
    except Unreadable:
        return ()


def accumulated(dtype: str) -> str:
    """In which dtype sums of *dtype* are kept."""
    return SUMS.get(dtype, "fp32")


def multiplied(count: int, dtype: str, tf32: bool = False) -> tuple[Flops, ...]:
    """*count* multiply-adds of a matmul; complex ones are four real ones each."""
    if dtype == "bool" or not count:
        return ()
    real = REAL.get(dtype, dtype)
    each = 8 if dtype in REAL else 2
    shown = "tf32" if tf32 and dtype == "fp32" else real
    return (Flops(each * count, "matmul", shown, accumulated(real)),)


def computed(
    count: int, dtype: str, plain: int = 0, special: int = 0, sums: bool = False
) -> tuple[Flops, ...]:
    """*plain* and *special* FLOPs for each of *count* elements; none of integers.

    A complex number counts as two real ones. `sums`: some are, in `accumulated(dtype)`.
    """
    if dtype in REAL:
        count, dtype = 2 * count, REAL[dtype]
    if dtype not in FLOATING:
        return ()
    kept = accumulated(dtype) if sums else ""
    both = (
        Flops(plain * count, "elementwise", dtype, kept),
        Flops(special * count, "special", dtype),
    )
    return tuple(flops for flops in both if flops.count)
