"""Compute the bandwidth of links between devices, and the bytes of collectives over them."""

from __future__ import annotations

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
