"""Read the arguments of a call by their positions, also where a trace has them only as text.

Kineto writes `[1, 1]`, `True`, `0.10000000000000001`, a dtype as its number (6), and nothing at all
for a string, for None and for a tensor. A dispatch mode writes `str(value)`. Positions are those of
the operator's schema; an argument that was not passed has the default of the schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gpuperf.model.aten import DTYPES, WIDTHS, Call, Tensor
from gpuperf.units import DTYPES as COMPUTED

MOST_TEXT = 2000  # characters: longer text is not parsed
INTEGER = re.compile(r"\s*-?\d{1,19}\s*")
NUMBER = re.compile(r"-?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][+-]?\d{1,4})?|-?inf|nan")
FLAG = re.compile(r"True|False")
# The dtype at each number of c10::ScalarType (c10/core/ScalarType.h).
SCALAR_TYPES = ["uint8", "int8", "int16", "int32", "int64", "fp16", "fp32", "fp64"]
CODES = dict(zip(map(str, range(8)), SCALAR_TYPES, strict=True)) | {
    "9": "complex64",
    "10": "complex128",
    "11": "bool",
    "15": "bf16",
    "23": "fp8",
    "24": "fp8",
}


class Unreadable(ValueError):
    """Missing or malformed arguments: the call lacks what its formula needs."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of *call* by position. With *tf32*, fp32 matmuls are counted as tf32."""

    call: Call
    tf32: bool = False

    @cached_property
    def name(self) -> str:
        """Return the operator's plain name: `add` of `aten::add_.Tensor`."""
        name = self.call.name.rpartition("::")[2].partition(".")[0]
        return name[:-1] if self.in_place and not name.startswith("__") else name

    @cached_property
    def in_place(self) -> bool:
        """Return whether the operator writes its first argument, as `add_` and `__iadd__` do."""
        name = self.call.name.rpartition("::")[2].partition(".")[0]
        return name.startswith("__i") if name.endswith("__") else name.endswith("_")

    @property
    def overload(self) -> str:
        """Return the overload, `Tensor` of `aten::add.Tensor`; empty in traces, which have none."""
        return self.call.name.rpartition("::")[2].partition(".")[2]

    @property
    def count(self) -> int:
        """Return the number of arguments that were passed."""
        return max(len(self.call.inputs), len(self.call.concrete))

    def tensors(self, *positions: int) -> tuple[Tensor, ...]:
        """Return the tensors in the arguments at *positions*, in order; position −1 has none."""
        inputs = self.call.inputs
        return tuple(t for at in positions if 0 <= at < len(inputs) for t in inputs[at])

    def optional(self, at: int) -> Tensor | None:
        """Return the first tensor in argument *at*, or None."""
        return next(iter(self.tensors(at)), None)

    def tensor(self, at: int) -> Tensor:
        """Return the first tensor in argument *at*. Raises: Unreadable if it has none."""
        tensor = self.optional(at)
        if tensor is None:
            raise Unreadable(f"argument {at} of {self.call.name[:60]} is not a tensor")
        return tensor

    def first(self, count: int, start: int = 0) -> list[Tensor]:
        """Return the tensors of *count* arguments from position *start* on.

        Raises: Unreadable if one of these arguments has no tensor.
        """
        return [self.tensor(at) for at in range(start, start + count)]

    def recorded(self, at: int) -> str:
        """Return the recorded text of argument *at*; empty if there is none."""
        return self.call.concrete[at].strip() if at < len(self.call.concrete) else ""

    def text(self, at: int) -> str | None:
        """Return the text of an argument; None if it was not passed.

        It is empty for None, for a tensor, and for a string in a trace. Raises: Unreadable if the
        call has no texts at all.
        """
        if at >= self.count:
            return None
        text = self.recorded(at)
        if not self.call.concrete or len(text) > MOST_TEXT:
            raise Unreadable(f"argument {at} of {self.call.name[:60]} has no readable text")
        return "" if text == "None" else text

    def integers(self, at: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Parse argument *at*, `[1, 1]` or `1`; *default* if it was not passed.

        Raises: Unreadable for other text.
        """
        text = self.text(at)
        if text is None and default is not None:
            return default
        parts = (text or "").strip("[]()").removesuffix(",").split(",")
        if all(INTEGER.fullmatch(part) for part in parts):
            return tuple(int(part) for part in parts)
        if text in ("[]", "()"):
            return ()
        raise Unreadable(f"{(text or '')[:40]!r} is not a list of integers")

    def integer(self, at: int, default: int | None = None) -> int:
        """Parse argument *at* as one integer. Raises: Unreadable for other text."""
        numbers = self.integers(at, None if default is None else (default,))
        if len(numbers) != 1:
            raise Unreadable("one integer is needed")
        return numbers[0]

    def dims(self, at: int) -> tuple[int, ...] | None:
        """Parse argument *at*, the dimensions to reduce; None means all of them.

        Raises: Unreadable for other text.
        """
        return self.integers(at) or None if self.text(at) else None

    def number(self, at: int, default: float) -> float:
        """Parse argument *at* as a number; *default* if it is unreadable.

        Such a number changes the count by a FLOP or two an element, so it raises nothing.
        """
        text = self.recorded(at)
        return float(text) if NUMBER.fullmatch(text[:100]) else default

    def scales(self, at: int) -> bool:
        """Return whether argument *at* is a factor other than 1: a number, a list or a tensor."""
        return bool(self.tensors(at)) or (bool(self.recorded(at)) and self.number(at, 0.0) != 1)

    def flag(self, at: int, default: bool | None = None) -> bool:
        """Parse argument *at*, `True` or `False`; *default* if it was not passed.

        Raises: Unreadable for other text.
        """
        text = self.text(at)
        if text is None and default is not None:
            return default
        if not FLAG.fullmatch(text or ""):
            raise Unreadable(f"{(text or '')[:40]!r} is neither True nor False")
        return text == "True"

    def flags(self, at: int, count: int) -> tuple[bool, ...]:
        """Parse argument *at* as *count* flags; all are True if it has another number of them."""
        flags = tuple(word == "True" for word in FLAG.findall(self.recorded(at)[:MOST_TEXT]))
        return flags if len(flags) == count else (True,) * count

    def dtype(self, at: int, default: str) -> str:
        """Parse argument *at*, a dtype by its number in a trace, its name in torch or short name.

        It is *default* if there is none. Raises: Unreadable for another text.
        """
        text = (self.text(at) or "").removeprefix("torch.")
        if not text:
            return default
        if text in WIDTHS or text in COMPUTED:
            return text
        try:
            return CODES.get(text) or DTYPES[text]
        except KeyError:
            raise Unreadable(f"unknown dtype {text[:40]!r}") from None
