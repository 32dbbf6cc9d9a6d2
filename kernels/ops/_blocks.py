"""Launch Triton kernels whose programs each take one block of a vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpuperf.jit import Tuned, tune

CANDIDATES = tuple(
    {"BLOCK": block, "warps": warps}
    for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8))
)


def in_blocks(kernel: Any, n: int, y: torch.Tensor, *args: Any, programs: int = 0) -> Tuned:
    """Return a call of *kernel*(y, *args, n, BLOCK) that returns y, with the fastest block.

    The grid has one program for each BLOCK of the n elements, or *programs* programs unless 0.
    """

    def make(tile: Mapping[str, int]) -> Callable[[], torch.Tensor]:
        block, warps = tile["BLOCK"], tile["warps"]
        grid = (programs or -(-n // block),)

        def call() -> torch.Tensor:
            kernel[grid](y, *args, n, BLOCK=block, num_warps=warps)
            return y

        return call

    return tune(make, CANDIDATES)
