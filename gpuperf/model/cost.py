"""What must an operation do, and what does one implementation of it do?

`Cost` is the least that one call of the *algorithm* needs, whoever implements it. `Work` is what
one *implementation* is modelled to do (eager sin²+cos² moves 11 tensors, a fused one 2). Neither
names a pipe: which unit serves an fp64 matmul is the device's affair, see `gpuperf.model.peaks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FlopKind = Literal["matmul", "elementwise", "special"]


MOST = 2**200  # beyond any machine, and still a float


def _check_count(count: int) -> None:
    if not 0 <= count < MOST:
        raise ValueError(f"{str(count)[:20]} is no count of operations or bytes")


@dataclass(frozen=True)
class Flops:
    """*count* floating-point operations of one kind; a fused multiply-add counts as 2.

    `accumulate` names the dtype of a matmul's sums (fp32 for bf16 and tf32, int32 for int8); left
    empty, any will do. Elementwise work needs none. `function` names a special function (`sin`,
    which stands for the cosine too, or `exp`); left empty, it is any.
    """

    count: int
    kind: FlopKind
    dtype: str
    accumulate: str = ""
    function: str = ""

    def __post_init__(self) -> None:
        _check_count(self.count)


@dataclass(frozen=True)
class Bytes:
    """Bytes through one channel: each input read once, each output written once."""

    read: int
    written: int
    channel: Literal["dram", "l2", "l1", "link", "host"] = "dram"

    def __post_init__(self) -> None:
        _check_count(self.read)
        _check_count(self.written)


@dataclass(frozen=True)
class Cost:
    """FLOPs by kind and dtype, and compulsory bytes by channel, of one call."""

    flops: tuple[Flops, ...] = ()
    bytes: tuple[Bytes, ...] = ()

    @property
    def flop_count(self) -> int:
        """All FLOPs of one call."""
        return sum(f.count for f in self.flops)

    @property
    def dram_bytes(self) -> int:
        """All bytes read and written in DRAM by one call."""
        return sum(b.read + b.written for b in self.bytes if b.channel == "dram")

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, FLOP/byte; 0 where nothing is moved."""
        return self.flop_count / self.dram_bytes if self.dram_bytes else 0.0


@dataclass(frozen=True)
class Work(Cost):
    """The same figures as modelled for one implementation."""
