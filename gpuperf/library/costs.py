"""Make a `Cost` of what a caller gives: a `Cost`, counts, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from gpuperf.errors import SYNONYMS, UnknownName, UsageError
from gpuperf.model.cost import Bytes, Cost, FlopKind, Flops
from gpuperf.units import DTYPES

COUNT_HINT = 'for example flops=gpuperf.Flops(2 * n, "elementwise", "fp32")'


def cost_of(
    cost: Cost | None,
    flops: float | Flops | Sequence[Flops] | None,
    bytes: float | Bytes | None,
    dtype: str,
) -> Cost | None:
    """Return the cost of one call, or None if nothing is known.

    A number of *flops* counts operations of matrix products in *dtype*; a number of *bytes* counts
    what is read from DRAM and written to it. Raises: UsageError.
    """
    if cost is not None and not isinstance(cost, Cost):
        raise UsageError(f"cost is of type {type(cost).__name__}, not a gpuperf.Cost", COUNT_HINT)
    if cost is not None and (flops is not None or bytes is not None):
        raise UsageError("cost is given, and flops or bytes too", "give cost alone")
    if flops is None and bytes is None:
        return cost
    moved = () if bytes is None else (_bytes(bytes),)
    return Cost(_flops(flops, dtype), moved)


def _bytes(bytes: float | Bytes) -> Bytes:
    return bytes if isinstance(bytes, Bytes) else Bytes(read=_count("bytes", bytes), written=0)


def _flops(flops: float | Flops | Sequence[Flops] | None, dtype: str) -> tuple[Flops, ...]:
    if flops is None:
        return ()
    given = (flops,) if isinstance(flops, Flops | int | float) else tuple(flops)
    if len(given) == 1 and isinstance(given[0], int | float):
        if not dtype:
            raise UsageError(
                f"flops={flops} does not say in which dtype", "add dtype='bf16', or give Flops"
            )
        return (Flops(_count("flops", given[0]), "matmul", _known(dtype)),)
    for one in given:
        if not isinstance(one, Flops) or one.kind not in get_args(FlopKind):
            raise UsageError(f"flops has {one!r:.80}, which is not a gpuperf.Flops", COUNT_HINT)
    return given  # type: ignore[return-value]


def _known(dtype: str) -> str:
    """Return gpuperf's name of *dtype*, which may be torch's. Raises: UnknownName."""
    name = str(dtype).removeprefix("torch.")
    name = "fp8" if name.startswith("float8_") else SYNONYMS.get(name, name)
    if name not in DTYPES:
        raise UnknownName("dtype", name, DTYPES)
    return name


def _count(name: str, value: float) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**100:
        raise UsageError(f"{name}={value!r:.40} is not a count", f"for example {name}=2 * n")
    return int(value)
