"""Compute the bandwidth of links between devices, and the bytes of collectives over them."""

from __future__ import annotations

import math

# Transfers a second of one lane, and the payload of the line code: PCI Express base specification.
PCIE = {"3.0": (8e9, 128 / 130), "4.0": (16e9, 128 / 130), "5.0": (32e9, 128 / 130)}


def pcie_bandwidth(generation: str, lanes: int = 16) -> float:
    """Return the bandwidth of one direction in byte/s, after the line code."""
    transfers, payload = PCIE[generation]
    return transfers * payload * lanes / 8


def all_reduce_bytes(size: float, ranks: int) -> float:
    """Return the bytes that each rank sends in a ring all-reduce of *size* bytes."""
    return 2 * (ranks - 1) / ranks * size


def gather_bytes(size: float, ranks: int) -> float:
    """Return the bytes that each rank sends in a ring all-gather or reduce-scatter of *size*
    bytes."""
    return (ranks - 1) / ranks * size


def collectives(size: float, ranks: int) -> tuple[tuple[str, str, int, float, float], ...]:
    """Return the collectives of an array of *size* bytes: name, algorithm, steps one after another,
    bytes that each rank sends, and the factor from size / time to the rate of a rank's link.

    A reduce-scatter is an all-gather backwards, and a reduction to one rank a broadcast.
    """
    reduced, gathered = all_reduce_bytes(size, ranks), gather_bytes(size, ranks)
    levels = math.ceil(math.log2(ranks))
    return (
        ("all-reduce", "ring", 2 * (ranks - 1), reduced, reduced / size),
        # Two binary trees, each of half the array: a rank has children in one of them alone.
        ("all-reduce", "tree", 2 * levels, min(2, ranks - 1) * size, reduced / size),
        ("all-gather", "ring", ranks - 1, gathered, gathered / size),
        ("broadcast", "ring", ranks - 1, size, 1.0),
        ("all-to-all", "direct", 1, gathered, gathered / size),
    )
