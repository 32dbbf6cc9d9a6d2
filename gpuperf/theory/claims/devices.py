"""Look up figures of devices for checks, each by a short name."""

from __future__ import annotations

import functools

from gpuperf.model.cost import Flops
from gpuperf.peaks.find import find_device
from gpuperf.theory.generations import tensor_rate, vector_rate
from gpuperf.theory.theory import Chip

IDS = {
    "V100": "v100-sxm2",
    "A100": "a100-sxm4-40gb",
    "A100 80 GB": "a100-sxm4-80gb",
    "A100 PCIe": "a100-pcie-80gb",
    "H100": "h100-sxm5",
    "H200": "h200-sxm",
    "B200": "b200",
    "RTX 4090": "rtx-4090",
}


@functools.cache
def chip(name: str) -> Chip:
    """Return the device of this short name."""
    return Chip(find_device(IDS[name]))


def sure(value: float | None) -> float:
    """Return *value*. Raises: ValueError if it is unknown."""
    if value is None:
        raise ValueError("the device has no such figure")
    return value


def tensor(name: str, dtype: str = "") -> float:
    """Return the tensor peak in FLOP/s of *dtype*, else of 16-bit inputs."""
    return sure(chip(name).rate(dtype) if dtype else tensor_rate(chip(name)))


def vector(name: str, dtype: str = "fp32") -> float:
    """Return the peak of the vector pipe in FLOP/s."""
    return sure(
        vector_rate(chip(name)) if dtype == "fp32" else chip(name).rate(dtype, "elementwise")
    )


def accumulating(name: str, dtype: str, accumulate: str) -> float:
    """Return the matmul peak in FLOP/s for sums in *accumulate*."""
    ceiling = chip(name).peaks.ceiling(Flops(1, "matmul", dtype, accumulate))
    return sure(ceiling.rate.value if ceiling else None)


def special(name: str) -> float:
    """Return the results a second of the special-function units."""
    ceiling = chip(name).peaks.ceiling(Flops(1, "special", "fp32", function="exp"))
    return sure(ceiling.rate.value if ceiling else None)


def bandwidth(name: str) -> float:
    """Return the DRAM bandwidth in byte/s."""
    return sure(chip(name).bandwidth)


def figure(name: str, which: str) -> float:
    """Return a figure of the device file in SI units."""
    return sure(chip(name).figure(which))


def ridge(name: str, dtype: str = "") -> float:
    """Return the ridge in FLOP/byte of *dtype*, else of 16-bit inputs."""
    return tensor(name, dtype) / bandwidth(name)
