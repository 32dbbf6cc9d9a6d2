"""Compute what fits into the memories of the chip."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from gpuperf.theory.theory import Chip, Curve, Parameter, Plot, Quantity, Theory, Value, ratio
from gpuperf.units import itemsize

REGISTERS = 64 * 1024 * 4  # bytes of the registers of an SM, from Volta to Blackwell
L1_BYTES = 128  # a clock and SM, from Volta to Blackwell
NS = tuple(2**k for k in range(6, 15))


def largest_square(size_bytes: float | None, element: int) -> int | None:
    """Return the largest n whose n·n elements of *element* bytes fit into *size_bytes*."""
    return None if size_bytes is None else math.isqrt(int(size_bytes) // element)


def l1_bandwidth(chip: Chip) -> float | None:
    """Return the bandwidth of all L1 caches in byte/s: SMs × 128 bytes × clock."""
    clock = chip.figure("boost_clock")
    return clock and chip.sms * L1_BYTES * clock


def memories(chip: Chip) -> Iterator[tuple[str, float | None]]:
    """Yield the memories of *chip*, smallest first, with their bytes."""
    nvidia = chip.peaks.vendor == "nvidia"
    shared = chip.figure("shared_memory")
    registers = REGISTERS if nvidia else None
    yield "registers of an SM", registers
    yield "shared memory of a block", chip.block_shared
    yield "registers of all SMs", registers and registers * chip.sms
    yield "shared memory of all SMs", shared and shared * chip.sms
    yield "L2", chip.figure("l2")
    yield "DRAM", chip.figure("memory_capacity")


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    size = itemsize(at.dtype)
    dram = chip.figure("memory_capacity")
    for name, held in memories(chip):
        pairs = None if held is None else int(held) // (2 * at.d * size)
        yield name, held, ratio(dram, held), largest_square(held, size), pairs


def _plot(at: Any, chip: Chip) -> Plot:
    size = itemsize(at.dtype)
    scores = Curve("scores of one head, n·n", [(n, n * n * size) for n in NS])
    pairs = Curve(f"keys and values, 2·n·{at.d}", [(n, 2 * n * at.d * size) for n in NS])
    shown = ("shared memory of a block", "L2")
    levels = {name: held for name, held in memories(chip) if held and name in shown}
    return Plot("sequence length n", "size", (scores, pairs), levels, in_bytes=True)


THEORY = Theory(
    question="What fits on the chip?",
    parameters=(
        Parameter("d", "64", "width of a head", most=2**14),
        Parameter("dtype", "bf16", "of every tensor", choices=("fp32", "bf16", "fp16", "fp8")),
    ),
    quantities=(
        Quantity("memory", "memory"),
        Quantity("bytes", "bytes", "byte"),
        Quantity("dram_over", "DRAM is", "times", "DRAM / this memory"),
        Quantity("scores_n", "n of n² scores", "", "√(bytes / s): attention scores of one head"),
        Quantity("keys", "keys and values", "", "bytes / (2·d·s): positions of one head"),
    ),
    rows=_rows,
    plot=_plot,
    sources=(
        "CUDA C++ Programming Guide, table of features by compute capability: 65,536 registers of "
        "4 bytes an SM; shared memory and L2 of `gpuperf devices`",
    ),
    notes=("a block's shared memory is 1 KiB less than the SM's from sm_80 on",),
)
