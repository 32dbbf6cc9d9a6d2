"""How does a noun become JSON, and come back exactly?

msgspec does both, and checks every type on the way in, so a file from a stranger is data or an
error, never code. Unknown fields are ignored: a newer minor version may add some.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

__all__ = ["decode", "encode", "to_builtins"]

T = TypeVar("T")


def encode(value: Any) -> bytes:
    """One line of JSON, without the newline."""
    return msgspec.json.encode(value)


def decode(line: bytes | str, kind: type[T]) -> T:
    """The noun *kind* that *line* holds. Raises: ValueError when it does not."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def to_builtins(value: Any) -> Any:
    """Plain dicts, lists and numbers, for a JSON report."""
    return msgspec.to_builtins(value)
