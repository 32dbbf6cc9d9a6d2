"""Compare the growth of compute and memory from V100 to B300."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpuperf.peaks.find import builtin_peaks
from gpuperf.theory.theory import Chip, Curve, Plot, Quantity, Theory, Value, ratio

# Data-centre devices in the order of their release.
LINE = ("v100-sxm2", "a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5", "h200-sxm", "b200", "b300")


def chips() -> tuple[Chip, ...]:
    """Return the devices of the comparison, oldest first."""
    known = {peaks.id: peaks for peaks in builtin_peaks()}
    return tuple(Chip(known[name]) for name in LINE if name in known)


def tensor_rate(chip: Chip) -> float | None:
    """Return the 16-bit tensor peak in FLOP/s: of bf16, or of fp16 on a device without bf16."""
    return chip.rate("bf16") or chip.rate("fp16")


def vector_rate(chip: Chip) -> float | None:
    """Return the fp32 peak of the vector pipe in FLOP/s."""
    return chip.rate("fp32", "elementwise")


def _rows(at: Any, chip: Chip) -> Iterator[tuple[Value, ...]]:
    every = chips()
    first = every[0]
    for each in every:
        tensor, vector = tensor_rate(each), vector_rate(each)
        yield (
            each.peaks.name,
            tensor,
            vector,
            each.bandwidth,
            ratio(tensor, tensor_rate(first)),
            ratio(vector, vector_rate(first)),
            ratio(each.bandwidth, first.bandwidth),
            ratio(tensor, each.bandwidth),
            ratio(vector, each.bandwidth),
        )


def _plot(at: Any, chip: Chip) -> Plot:
    every = chips()
    first = every[0]
    kinds: dict[str, Callable[[Chip], float | None]] = {
        "16-bit tensor": tensor_rate,
        "fp32 vector": vector_rate,
        "bandwidth": lambda each: each.bandwidth,
        "16-bit ridge": lambda each: ratio(tensor_rate(each), each.bandwidth),
    }
    curves = []
    for label, figure in kinds.items():
        growth = [(i, ratio(figure(each), figure(first))) for i, each in enumerate(every, 1)]
        curves.append(Curve(label, [(i, times) for i, times in growth if times is not None]))
    names = {float(i): _short(each.peaks.id) for i, each in enumerate(every, 1)}
    return Plot("device", f"times the {first.peaks.name}", curves, linear=True, names=names)


def _short(name: str) -> str:
    """Return the id of a device without its form factor: `a100 40gb`."""
    return " ".join(part for part in name.split("-") if not part.startswith("sxm"))


THEORY = Theory(
    question="Has compute grown faster than memory?",
    parameters=(),
    quantities=(
        Quantity("device", "device"),
        Quantity("tensor_flop_per_s", "16-bit tensor", "FLOP/s", "dense, fp32 accumulate"),
        Quantity("vector_flop_per_s", "fp32 vector", "FLOP/s"),
        Quantity("bandwidth_byte_per_s", "bandwidth", "byte/s"),
        Quantity("tensor_growth", "tensor", "× first", "and vector, DRAM: over the first device"),
        Quantity("vector_growth", "vector", "× first"),
        Quantity("bandwidth_growth", "DRAM", "× first"),
        Quantity("ridge_flop_per_byte", "ridge", "FLOP/byte", "16-bit tensor peak / bandwidth"),
        Quantity("vector_ridge", "vector ridge", "FLOP/byte", "fp32 vector peak / bandwidth", 1),
    ),
    rows=_rows,
    plot=_plot,
    sources=("`gpuperf devices NAME` has the source of each figure",),
    notes=("a device that torch shows as two dies is one die here",),
)
