"""Compute the bandwidth of each level of memory, where it was not measured on the device."""

from __future__ import annotations

L1_BYTES = 128.0  # a cycle and SM: 32 lanes of 4 bytes (NVIDIA's tuning guides of each generation)
# Bytes of the L2 a cycle and SM that reads reach: 5.4 TB/s on A100-80, 7 on H100 PCIe and 9 on H200
# are 36, 35 and 34 (gpu-benches `gpu-l2-cache`, and gpuperf's own), of a path that is 64 wide.
L2_BYTES = 35.0
READ_SHARE = 0.92  # of the data sheet's bandwidth that reads reach: 0.91 to 0.95 (the same sources)
# Of the data sheet's bandwidth that a copy reaches: 0.84 in print for an H200 (Azure ND H200 v5),
# 0.85 to 0.87 for A100 (gpu-stream), and 0.89 on the H200 of docs/measured.
COPY_SHARE = 0.87


def l1_bandwidth(sms: float, clock: float) -> float:
    """Return the byte/s of the L1s of *sms* SMs at *clock* Hz."""
    return sms * clock * L1_BYTES


def l2_bandwidth(sms: float, clock: float) -> float:
    """Return the byte/s that *sms* SMs at *clock* Hz read from the L2."""
    return sms * clock * L2_BYTES


def read_bandwidth(sheet: float) -> float:
    """Return the byte/s that reads reach of the bandwidth *sheet* of the data sheet."""
    return sheet * READ_SHARE


def copy_bandwidth(value: float, source: str) -> float:
    """Return the byte/s of a copy: *value*, or its share if *source* is the data sheet."""
    return value * COPY_SHARE if source == "data sheet" else value
