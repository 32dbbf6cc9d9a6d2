"""Compute how many warps of a kernel are on an SM, and which resource limits them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuperf.theory.theory import Chip, Curve, Parameter, Plot, Quantity, Theory, Value

WARP = 32
REGISTERS = 65_536  # of an SM
REGISTER_UNIT = 256  # registers that a warp is given at a time
WARP_UNIT = 4  # warps that share the four register files of an SM
SHARED_UNIT, RESERVED = 1024, 1024  # bytes: the unit of a block's shared memory, and the system's
OLD_SHARED_UNIT = 256  # before compute capability 8.0, which reserves nothing


@dataclass(frozen=True)
class Limits:
    """The most that an SM holds: threads, blocks, and bytes of shared memory."""

    threads: int
    blocks: int
    shared: int


LIMITS: Mapping[str, Limits] = {
    "7.0": Limits(2048, 32, 96 * 1024),
    "7.5": Limits(1024, 16, 64 * 1024),
    "8.0": Limits(2048, 32, 164 * 1024),
    "8.6": Limits(1536, 16, 100 * 1024),
    "8.9": Limits(1536, 24, 100 * 1024),
    "9.0": Limits(2048, 32, 228 * 1024),
    "10.0": Limits(2048, 32, 228 * 1024),
    "12.0": Limits(1536, 32, 100 * 1024),
}


def blocks_by(
    limits: Limits, capability: str, threads: int, registers: int, shared: int
) -> dict[str, int]:
    """Return how many blocks of *threads* threads with *registers* registers a thread and *shared*
    bytes fit on an SM, by each resource."""
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    held_warps = (
        REGISTERS // of_warp // WARP_UNIT * WARP_UNIT if of_warp else limits.threads // WARP
    )
    modern = int(capability.split(".")[0]) >= 8
    unit, reserved = (SHARED_UNIT, RESERVED) if modern else (OLD_SHARED_UNIT, 0)
    of_block = -(-(shared + reserved) // unit) * unit
    return {
        "threads": limits.threads // (warps * WARP),
        "blocks": limits.blocks,
        "registers": held_warps // warps,
        "shared memory": limits.shared // of_block if of_block else limits.blocks,
    }


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    limits = LIMITS.get(chip.peaks.capability)
    for threads in at.threads:
        if limits is None:
            yield threads, at.registers, at.shared, None, "unknown", None, None, None, None
            continue
        fitting = blocks_by(limits, chip.peaks.capability, threads, at.registers, at.shared)
        blocks = min(fitting.values())
        by = " and ".join(name for name, count in fitting.items() if count == blocks)
        held = blocks * threads
        product = chip.sms * limits.blocks * 1024
        share = held / limits.threads
        yield threads, at.registers, at.shared, blocks, by, share, held, held * chip.sms, product


def _plot(at: Any, chip: Chip) -> Plot:
    limits = LIMITS.get(chip.peaks.capability)
    if limits is None:
        return Plot("threads of a block", "occupancy", ())
    curves = []
    for registers in sorted({32, 64, 128, at.registers}):
        points = []
        for threads in range(WARP, 1025, WARP):
            fitting = blocks_by(limits, chip.peaks.capability, threads, registers, at.shared)
            points.append((threads, min(fitting.values()) * threads / limits.threads))
        held = [(threads, share) for threads, share in points if share]
        curves.append(Curve(f"{registers} registers a thread", held))
    return Plot("threads of a block", "occupancy", curves, linear=True)


THEORY = Theory(
    question="How many threads of a kernel are on an SM at once, and what limits them?",
    parameters=(
        Parameter("threads", "128,256,512,1024", "threads of a block", most=1024, swept=True),
        Parameter("registers", "64", "registers of a thread", least=1, most=255),
        Parameter("shared", "0", "bytes of shared memory of a block", least=0, most=2**20),
    ),
    quantities=(
        Quantity("threads", "threads", "a block"),
        Quantity("registers", "registers", "a thread"),
        Quantity("shared_bytes", "shared memory", "byte"),
        Quantity("blocks", "blocks", "an SM", "the fewest by threads, blocks, registers, memory"),
        Quantity("limited_by", "limited by"),
        Quantity("occupancy", "occupancy", "", "threads on an SM / the most that it holds"),
        Quantity("sm_threads", "threads", "an SM"),
        Quantity("all_threads", "threads", "all SMs"),
        Quantity("product", "product", "threads", "SMs · blocks an SM · 1,024: more than fit"),
    ),
    rows=_rows,
    plot=_plot,
    sources=(
        "CUDA C++ Programming Guide, technical specifications by compute capability; units "
        "of allocation: cuda_occupancy.h of the CUDA toolkit",
    ),
    notes=("unused threads of a last, partial warp count as the warp's",),
)
