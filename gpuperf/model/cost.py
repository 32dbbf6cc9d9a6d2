"""Define the operations and bytes that an algorithm needs, and those that an implementation does.

`Cost` is the least that one call of the *algorithm* needs in any implementation. `Work` is the
model of one *implementation*: eager sin²+cos² moves 11 tensors, a fused one 2. Neither names a
pipe, since devices differ in the unit that computes an fp64 matmul; see `gpuperf.model.peaks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FlopKind = Literal["matmul", "elementwise", "special"]

MOST = 2**200  # largest count: more than any machine can do, and still a float


def _check_count(count: int) -> None:
    if not 0 <= count < MOST:
        raise ValueError(f"a count of operations or bytes cannot be {str(count)[:20]}")


@dataclass(frozen=True)
class Flops:
    """*count* floating-point operations of one kind; a fused multiply-add counts as 2.

    `accumulate` is the dtype of the sums of a matmul (fp32 for bf16 and tf32, int32 for int8), or
    empty for any dtype and for elementwise work. `function` is a special function (`sin`, which
    includes the cosine, or `exp`), or empty for any function.
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
    """Bytes through one channel: every input is read once, every output written once."""

    read: int
    written: int
    channel: Literal["dram", "l2", "l1", "link", "host"] = "dram"

    def __post_init__(self) -> None:
        _check_count(self.read)
        _check_count(self.written)


@dataclass(frozen=True)
class Cost:
    """FLOPs by kind and dtype, and compulsory bytes by channel, of one call.

    `collective` are the bytes of the whole array of a collective: those of an all-gather's result,
    of a reduce-scatter's input. Its bytes of the channel `link` are those that a rank receives and
    sends in a ring.
    """

    flops: tuple[Flops, ...] = ()
    bytes: tuple[Bytes, ...] = ()
    collective: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        _check_count(self.collective)

    @property
    def flop_count(self) -> int:
        """FLOPs of one call, of all kinds."""
        return sum(f.count for f in self.flops)

    @property
    def dram_bytes(self) -> int:
        """Bytes that one call reads from DRAM and writes to it."""
        return sum(b.read + b.written for b in self.bytes if b.channel == "dram")

    @property
    def link_bytes(self) -> int:
        """Bytes that one call of a collective sends from a rank over its link."""
        return sum(b.written for b in self.bytes if b.channel == "link")

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOP/byte; 0 if no bytes are moved."""
        return self.flop_count / self.dram_bytes if self.dram_bytes else 0.0


@dataclass(frozen=True)
class Work(Cost):
    """FLOPs and bytes of one call of one implementation, by its model.

    `launches` is how often the host launches something in a call, where the implementation sets it:
    once for a CUDA graph. None: for each kernel.
    """

    launches: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count(self.launches or 0)
