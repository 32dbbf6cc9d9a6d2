"""How does a noun become JSON, and come back exactly?

msgspec does both, and checks every type on the way in, so a file from a stranger is data or an
error, never code. Unknown fields are ignored: a newer minor version may add some.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode(value: Any) -> bytes:
    """One line of JSON, without the newline.

    Text that is no Unicode (a file name of stray bytes) is written with `?` in its place.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(to_builtins(value)))


def decode(line: bytes | str, kind: type[T]) -> T:
    """The noun *kind* that *line* holds. Raises: ValueError when it does not."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def to_builtins(value: Any) -> Any:
    """Plain dicts, lists and numbers, for a JSON report."""
    return msgspec.to_builtins(value)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(k): _encodable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(v) for v in value]
    return value
