"""Quantize weights (n, k) for the workload `linear`, and restore what the quantized ones stand for.

| format | codes | scale | activations |
|---|---|---|---|
| fp8 | e4m3 (n, k) | one, fp32 | e4m3 (m, k) with one scale, fp32 |
| int8 | int8 (n, k) | one a row, in the dtype of x | as they are |
| int8-dynamic | int8 (n, k) | one a row, in the dtype of x | int8 with one scale a row |
| int4 | two a byte (n, k/2) | one for `group` in k, in the dtype of x | as they are |

A scale is the largest magnitude divided by the largest code (448, 127, 7), and a code is rounded to
the nearest. A byte of int4 has the weight j of its row in its low half and the weight j + k/2 in
its high half, each plus 8, so that both halves of a row are read along x without gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from gpuperf import Point
from gpuperf.errors import CannotMeasure

AS_X = "unquantized"
FORMATS = (AS_X, "fp8", "int8", "int8-dynamic", "int4")
LARGEST = {"fp8": 448.0, "int8": 127.0, "int8-dynamic": 127.0, "int4": 7.0}
GROUP = 128
NIBBLE, OFFSET = 15, 8
ROWS = 1024  # of weights that are converted to float64 at a time
SAMPLED = 16  # rows of x of which the error of quantization is computed

Inputs = Mapping[str, torch.Tensor]
Make = Callable[[tuple[int, ...], str], torch.Tensor]


def torch_dtype(dtype: str) -> torch.dtype:
    """Return torch's dtype of x and y, of the name *dtype*."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]


def format_of(point: Point) -> str:
    """Return the format of the weights of *point*; `AS_X` where they have the dtype of x."""
    return str(point.get("weights", AS_X))


def group_of(point: Point) -> int:
    """Return the number of weights in k that share a scale."""
    return int(point.get("group", GROUP)) if format_of(point) == "int4" else int(point.k)


def check_groups(point: Point) -> None:
    """Raise CannotMeasure for int4 weights that do not fill their bytes or their groups."""
    if format_of(point) != "int4":
        return
    if point.k % 2:
        raise CannotMeasure(
            f"int4 packs two weights in a byte, and k = {point.k} is odd", "choose an even --k"
        )
    if point.k % group_of(point):
        raise CannotMeasure(
            f"groups of {group_of(point)} weights do not divide k = {point.k}",
            f"choose a --group that divides {point.k}",
        )


def make_inputs(point: Point, make: Make) -> Inputs:
    """Draw x (m, k) and the weights (n, k), which are quantized if the format says so.

    `original` has the weights from before; no result depends on them. Raises: CannotMeasure if the
    group does not divide k.
    """
    check_groups(point)
    kind, m, n, k = format_of(point), point.m, point.n, point.k
    if kind == AS_X:
        return {"x": make((m, k), point.dtype), "weight": make((n, k), point.dtype)}
    original = make((n, k), point.dtype)
    if kind == "fp8":
        x, x_scale = make((m, k), "fp8"), make((), "fp32")
        weight, scale = make((n, k), "fp8"), make((), "fp32")
        if not original.is_meta:  # see `draw_table` in _cache.py
            x_scale.abs_().add_(0.5)
            fill_codes(original, weight, scale, kind)
        return {"x": x, "x_scale": x_scale, "weight": weight, "scale": scale, "original": original}
    weight = make((n, k // 2 if kind == "int4" else k), "int8")
    scale = make((n, k // group_of(point)), point.dtype)
    if not original.is_meta:
        fill_codes(original, weight, scale, kind)
    return {"x": make((m, k), point.dtype), "weight": weight, "scale": scale, "original": original}


def fill_codes(
    original: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, kind: str
) -> None:
    """Quantize *original* (n, k) into the codes *weight* and their *scale*."""
    n, k = original.shape
    groups = original.view(1, -1) if scale.dim() == 0 else original.view(n, scale.shape[1], -1)
    largest = groups.abs().amax(-1).float()
    scale.copy_((largest / LARGEST[kind]).view(scale.shape))
    scale.masked_fill_(scale == 0, 1.0)
    step = scale.float() if scale.dim() == 0 else scale.float()[..., None]
    codes = (groups.float() / step).view(n, k)
    if kind == "fp8":
        weight.copy_(codes.clamp_(-LARGEST[kind], LARGEST[kind]))
        return
    codes = codes.round_().clamp_(-LARGEST[kind], LARGEST[kind]).to(torch.int8)
    weight.copy_(pack(codes) if kind == "int4" else codes)


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Return codes (n, k) from −8 to 7 as bytes (n, k/2)."""
    low, high = (codes + OFFSET).chunk(2, 1)
    return low | (high << 4)


def unpack(weight: torch.Tensor) -> torch.Tensor:
    """Return the codes (n, k) of bytes (n, k/2)."""
    return torch.cat((weight & NIBBLE, (weight >> 4) & NIBBLE), 1) - OFFSET


def restored(inputs: Inputs, point: Point, dtype: torch.dtype) -> torch.Tensor:
    """Return the weights (n, k) that the codes of *inputs* stand for, in *dtype*."""
    weight, kind = inputs["weight"], format_of(point)
    if kind == AS_X:
        return weight.to(dtype)
    scale = inputs["scale"].to(dtype)
    if kind == "int4":
        grouped = unpack(weight).view(len(weight), scale.shape[1], -1).to(dtype)
        return (grouped * scale[..., None]).view(len(weight), -1)
    return weight.to(dtype) * scale


def quantized_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the int8 codes of *x*, as whole numbers in fp32, and the scale of each row."""
    values = x.float()
    scale = values.abs().amax(-1, keepdim=True) / LARGEST["int8"]
    scale = scale.masked_fill(scale == 0, 1.0)
    return (values / scale).round_(), scale


def activations(inputs: Inputs, point: Point) -> torch.Tensor:
    """Return the activations in float64 as the format rounds them."""
    kind, x = format_of(point), inputs["x"]
    if kind == "int8-dynamic":
        codes, scale = quantized_rows(x)
        return codes.double() * scale.double()
    return x.double() * inputs["x_scale"].double() if kind == "fp8" else x.double()


def parts(inputs: Inputs, point: Point) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield the restored weights in float64, `ROWS` rows at a time, and which rows they are."""
    weight, scale = inputs["weight"], inputs.get("scale")
    for start in range(0, len(weight), ROWS):
        rows = slice(start, start + ROWS)
        few = {"weight": weight[rows]}
        if scale is not None:
            few["scale"] = scale[rows] if scale.dim() else scale
        yield rows, restored(few, point, torch.float64)


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Compute x·Wᵀ in float64 with the weights as they are quantized."""
    x = activations(inputs, point)
    return torch.cat([x @ part.t() for _, part in parts(inputs, point)], 1)


def quantization_error(inputs: Inputs, point: Point) -> float:
    """Return how far the exact product of some rows of x is from that with the original weights.

    The root mean square of the difference is divided by that of the product with the original.
    """
    few = {**inputs, "x": inputs["x"][:SAMPLED]}
    x = few["x"].double() * (few["x_scale"].double() if "x_scale" in few else 1.0)
    rounded, off, size = activations(few, point), 0.0, 0.0
    for rows, part in parts(few, point):
        want = x @ inputs["original"][rows].double().t()
        off += float((rounded @ part.t() - want).square().sum())
        size += float(want.square().sum())
    return (off / size) ** 0.5 if size else 0.0
