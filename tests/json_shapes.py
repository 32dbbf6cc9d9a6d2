"""Check a JSON document against the shape of a file format that is written out in a test."""

from __future__ import annotations

from typing import Any


class Maybe:
    """A key that a document may lack."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


class Names:
    """An object with any keys, whose values all have one shape."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


def misfits(value: Any, shape: Any, place: str = "$") -> list[str]:
    """Return a sentence for each part of *value* that has another shape.

    A dict names all keys that an object may have, a list the shape of all elements, a tuple shapes
    of which one fits, a type the type of a value; any other value is that value.
    """
    if isinstance(shape, Names):
        if not isinstance(value, dict):
            return [f"{place} is no object"]
        return [m for key, v in value.items() for m in misfits(v, shape.shape, f"{place}.{key}")]
    if isinstance(shape, dict):
        return _object(value, shape, place)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{place} is no list"]
        return [m for i, v in enumerate(value) for m in misfits(v, shape[0], f"{place}[{i}]")]
    if isinstance(shape, tuple):
        return [] if any(not misfits(value, each) for each in shape) else [f"{place}: {value!r}"]
    if isinstance(shape, type):
        right = isinstance(value, shape) and not (isinstance(value, bool) and shape is not bool)
        return [] if right else [f"{place} is {value!r}, not {shape.__name__}"]
    return [] if value == shape else [f"{place} is {value!r}, not {shape!r}"]


def _object(value: Any, shape: dict[str, Any], place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place} is no object"]
    wrong = [f"{place} has the unknown key {key!r}" for key in value.keys() - shape.keys()]
    for key, part in shape.items():
        inner = part.shape if isinstance(part, Maybe) else part
        if key in value:
            wrong += misfits(value[key], inner, f"{place}.{key}")
        elif not isinstance(part, Maybe):
            wrong.append(f"{place} lacks {key!r}")
    return wrong
