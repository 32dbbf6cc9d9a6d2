"""What does a call's argument at a position say, where somebody's trace has it only as text?

Kineto writes `[1, 1]`, `True`, `0.10000000000000001`, a dtype as its number (6), and nothing at all
for a string, for None and for a tensor. A dispatch mode writes `str(value)`. Positions are the
schema's, and past the last one that is there the schema's default holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gpuperf.model.aten import DTYPES, WIDTHS, Call, Tensor
from gpuperf.units import DTYPES as COMPUTED

MOST_TEXT = 2000  # characters: a stranger's text is not parsed beyond
INTEGER = re.compile(r"\s*-?\d{1,19}\s*")
NUMBER = re.compile(r"-?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][+-]?\d{1,4})?|-?inf|nan")
FLAG = re.compile(r"True|False")
# c10::ScalarType, c10/core/ScalarType.h: its order is its number.
CODES = {
    "0": "uint8",
    "1": "int8",
    "2": "int16",
    "3": "int32",
    "4": "int64",
    "5": "fp16",
    "6": "fp32",
    "7": "fp64",
    "9": "complex64",
    "10": "complex128",
    "11": "bool",
    "15": "bf16",
    "23": "fp8",
    "24": "fp8",
}


class Unreadable(ValueError):
    """The call does not say what its formula needs: too few arguments, garbage, or nothing."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of *call* by position. fp32 matmuls are done in tf32 where *tf32* is set."""

    call: Call
    tf32: bool = False

    @cached_property
    def name(self) -> str:
        """`add` of `aten::add_.Tensor`."""
        name = self.call.name.rpartition("::")[2].partition(".")[0]
        return name[:-1] if self.in_place and not name.startswith("__") else name

    @cached_property
    def in_place(self) -> bool:
        """Whether it writes its first argument: `add_`, `__iadd__`."""
        name = self.call.name.rpartition("::")[2].partition(".")[0]
        return name.startswith("__i") if name.endswith("__") else name.endswith("_")

    @property
    def overload(self) -> str:
        """`Tensor` of `aten::add.Tensor`; a trace does not say."""
        return self.call.name.rpartition("::")[2].partition(".")[2]

    @property
    def count(self) -> int:
        """How many arguments were passed."""
        return max(len(self.call.inputs), len(self.call.concrete))

    def tensors(self, at: int) -> tuple[Tensor, ...]:
        """The tensors of the argument, none where it is something else."""
        return self.call.inputs[at] if at < len(self.call.inputs) else ()

    def optional(self, at: int) -> Tensor | None:
        """Its tensor, or None."""
        return next(iter(self.tensors(at)), None)

    def tensor(self, at: int) -> Tensor:
        """Its tensor. Raises: Unreadable where there is none."""
        tensor = self.optional(at)
        if tensor is None:
            raise Unreadable(f"argument {at} of {self.call.name[:60]} is no tensor")
        return tensor

    def text(self, at: int) -> str | None:
        """Its text; empty for None, for a string in a trace and for a tensor; None: not passed.

        Raises: Unreadable where the call says nothing of such arguments.
        """
        if at >= self.count:
            return None
        if not self.call.concrete:
            raise Unreadable(f"nobody recorded argument {at} of {self.call.name[:60]}")
        text = self.call.concrete[at].strip() if at < len(self.call.concrete) else ""
        if len(text) > MOST_TEXT:
            raise Unreadable(f"argument {at} of {self.call.name[:60]} is too long")
        return "" if text == "None" else text

    def integers(self, at: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """`[1, 1]`, or `1`. Raises: Unreadable where it is none."""
        text = self.text(at)
        if text is None and default is not None:
            return default
        parts = (text or "").strip("[]()").removesuffix(",").split(",")
        if all(INTEGER.fullmatch(part) for part in parts):
            return tuple(int(part) for part in parts)
        if text in ("[]", "()"):
            return ()
        raise Unreadable(f"{(text or '')[:40]!r} is no list of integers")

    def integer(self, at: int, default: int | None = None) -> int:
        """Raises: Unreadable where it is none."""
        numbers = self.integers(at, None if default is None else (default,))
        if len(numbers) != 1:
            raise Unreadable("one integer is needed")
        return numbers[0]

    def dims(self, at: int) -> tuple[int, ...] | None:
        """Dimensions to reduce; None for all of them. Raises: Unreadable where nobody knows."""
        return self.integers(at) or None if self.text(at) else None

    def number(self, at: int, default: float) -> float:
        """A scalar; *default* where nobody knows: for what changes a FLOP or two an element."""
        text = self.call.concrete[at].strip() if at < len(self.call.concrete) else ""
        return float(text) if NUMBER.fullmatch(text[:100]) else default

    def scales(self, at: int) -> bool:
        """Whether a factor stands there that is not 1: a number, a list of them, or a tensor."""
        text = self.call.concrete[at].strip() if at < len(self.call.concrete) else ""
        return bool(self.tensors(at)) or (bool(text) and self.number(at, 0.0) != 1)

    def flag(self, at: int, default: bool | None = None) -> bool:
        """Raises: Unreadable where it is neither True nor False."""
        text = self.text(at)
        if text is None and default is not None:
            return default
        if not FLAG.fullmatch(text or ""):
            raise Unreadable(f"{(text or '')[:40]!r} is neither True nor False")
        return text == "True"

    def flags(self, at: int, count: int) -> tuple[bool, ...]:
        """A mask of *count*; all where nobody knows."""
        text = self.call.concrete[at][:MOST_TEXT] if at < len(self.call.concrete) else ""
        found = tuple(word == "True" for word in FLAG.findall(text))
        return found if len(found) == count else (True,) * count

    def dtype(self, at: int, default: str) -> str:
        """A dtype by its number in a trace, its name in torch, or ours."""
        text = (self.text(at) or "").removeprefix("torch.")
        if not text:
            return default
        if text in WIDTHS or text in COMPUTED:
            return text
        try:
            return CODES.get(text) or DTYPES[text]
        except KeyError:
            raise Unreadable(f"unknown dtype {text[:40]!r}") from None
