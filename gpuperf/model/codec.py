"""Convert values to JSON and back.

msgspec checks every type while it decodes, so an untrusted file becomes data or an error, never
code. It ignores unknown fields, which a newer version may have added.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode(value: Any) -> bytes:
    """Return *value* as one line of JSON, without the newline.

    A character that UTF-8 cannot encode (from a file name of stray bytes) becomes `?`.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(to_builtins(value)))


def decode(line: bytes | str, kind: type[T]) -> T:
    """Return the value of the type *kind* in *line*. Raises: ValueError if *line* has none."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def to_builtins(value: Any) -> Any:
    """Return *value* as dicts, lists, strings and numbers, for a JSON report."""
    return msgspec.to_builtins(value)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(k): _encodable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(v) for v in value]
    return value
