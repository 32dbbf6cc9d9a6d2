"""Choose among the tilings of rows those that differ to Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["distinct"]


def distinct(m: int, tilings: Iterable[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """Return the tilings that cut m rows into 2 to 10 tiles, without those that are the same to the
    interpreter, which knows neither warps, registers nor stages."""
    few = [t for t in tilings if 1 < -(-m // t["rows"]) <= 10]
    return [*{(t["rows"], t["per_sm"], t.get("split"), t.get("pieces")): t for t in few}.values()]
