"""Compute y = x·Wᵀ of activations x (m, k) and weights W (n, k) that may be quantized; y is (m, n).

2·m·n·k FLOP. The weights, the scales and x are read once, y is written once: for few rows of x the
bytes of the weights decide, so that half the bits are half the time. `weights` names their format:
`unquantized` (the dtype of x), `fp8`, `int8` (multiplied in the dtype of x), `int8-dynamic` (x is
quantized by each call and multiplied in int8) or `int4` with a scale for each `group` in k.

- `dequantize`: torch writes the weights in the dtype of x, reads them again and multiplies.
- `torch`: torch's own kernel of each format, where it has one.
- `triton`: codes are converted in registers; a GEMV or thin tiles up to 16 rows of x, tensor cores.
  For many rows on Hopper one candidate restores the weights in memory; its bytes are not counted.
- `cuda`: CUDA C for up to 16 rows of x in bf16 and for int4 and int8, whose codes become an operand
  of the tensor cores in the registers into which they were loaded.

The reference has the quantized weights. How far the exact product is from that with the original
weights is the reading `quantization_error` of a record, relative and in the root mean square.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.kernels._linear_cuda import cuda_supports, linear_cuda
from gpuperf.kernels._linear_triton import linear_triton
from gpuperf.kernels._quantized import (
    AS_X,
    FORMATS,
    GROUP,
    OFFSET,
    Inputs,
    activations,
    format_of,
    group_of,
    make_inputs,
    quantization_error,
    quantized_rows,
    reference,
    restored,
    torch_dtype,
    unpack,
)

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import Tuned, lacks_triton
from gpuperf.units import itemsize

Call = Callable[[], torch.Tensor]
Build = Callable[[Inputs, Point, Any], Call]

PRODUCTS = {"fp8": "fp8", "int8-dynamic": "int8"}  # dtypes of products; else that of x
INNER_TILES = 8  # of torch's int4 layout on a GPU, each of 16 weights in k
INT4_GROUPS = (32, 64, 128, 256)
OPERATORS = {"int8": "_weight_int8pack_mm", "int4": "_weight_int4pack_mm"}
FP8_SUMS = "fp8 tensor cores sum in fewer bits than an fp32 result has"


class WithError(Tuned):
    """A call whose reading is the error of the quantized weights."""

    def __init__(self, call: Call, error: float) -> None:
        super().__init__(call, getattr(call, "chosen", {}))
        self.error = error

    def readings(self) -> dict[str, float]:
        """Return the error of the exact product, relative to that with the original weights."""
        return {"quantization_error": self.error}


def with_error(build: Build) -> Build:
    """Return *build* whose calls have the error of quantization among their readings."""

    def built(inputs: Inputs, point: Point, options: Any) -> Call:
        call = build(inputs, point, options)
        if format_of(point) == AS_X:
            return call
        return WithError(call, quantization_error(inputs, point))

    return built


def linear_dequantize(inputs: Inputs, point: Point, options: object) -> Call:
    """Build a call that restores the weights in the dtype of x, then multiplies."""
    x, dtype, kind = inputs["x"], torch_dtype(point.dtype), format_of(point)

    def call() -> torch.Tensor:
        weight = restored(inputs, point, dtype)
        if kind == "int8-dynamic":
            codes, scale = quantized_rows(x)
            return torch.mm((codes * scale).to(dtype), weight.t())
        if kind == "fp8":
            return torch.mm(x.to(dtype), weight.t()) * inputs["x_scale"].to(dtype)
        return torch.mm(x, weight.t())

    return call


def linear_torch(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the call of torch's own kernel for the format of the weights."""
    x, weight, kind = inputs["x"], inputs["weight"], format_of(point)
    dtype = torch_dtype(point.dtype)
    if kind == AS_X:
        return lambda: torch.mm(x, weight.t())
    if kind == "int4":
        return torch_int4(inputs, point)
    scale = inputs["scale"]
    if kind == "fp8":
        by = inputs["x_scale"]
        return lambda: torch._scaled_mm(x, weight.t(), by, scale, out_dtype=dtype)
    if kind == "int8":
        return lambda: torch._weight_int8pack_mm(x, weight, scale.view(-1))

    def call() -> torch.Tensor:
        codes, by = quantized_rows(x)
        sums = torch._int_mm(codes.to(torch.int8), weight.t())
        return (sums * by * scale.view(-1)).to(dtype)

    return call


def torch_int4(inputs: Inputs, point: Point) -> Call:
    """Build torch's int4 product, which reads a layout of its own, made when the weights change."""
    x, weight, scale, group = inputs["x"], inputs["weight"], inputs["scale"], group_of(point)
    seen: tuple[int, int] | None = None
    packed = both = torch.empty(0)
    multiply = torch.ops.aten._weight_int4pack_mm
    if not x.is_cuda:
        multiply = torch.ops.aten._weight_int4pack_mm_for_cpu

    def call() -> torch.Tensor:
        nonlocal seen, packed, both
        if seen != (versions := (weight._version, scale._version)):
            seen, packed = versions, int4_layout(unpack(weight) + OFFSET)
            both = torch.stack((scale.t(), torch.zeros_like(scale.t())), -1).contiguous()
        return multiply(x, packed, group, both)

    return call


def int4_layout(codes: torch.Tensor) -> torch.Tensor:
    """Return *codes* (n, k) from 0 to 15 in the layout that torch's int4 product reads."""
    if not codes.is_cuda:
        return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).view(torch.uint8)
    return torch.ops.aten._convert_weight_to_int4pack(pairs, INNER_TILES)


def dequantize_supports(point: Point, device: Any) -> str | None:
    """Return why nothing is dequantized, or None."""
    return "the weights are not quantized" if format_of(point) == AS_X else None


def torch_supports(point: Point, device: Any) -> str | None:
    """Return why torch has no kernel for the point, by the rules of torch 2.11, or None."""
    kind, m, n, k = format_of(point), point.m, point.n, point.k
    if kind == "fp8":
        if device.kind != "cpu" and point.dtype == "fp32":
            return FP8_SUMS
        return "torch._scaled_mm needs multiples of 16 for n and k" if n % 16 or k % 16 else None
    if kind == "int8-dynamic" and device.kind != "cpu" and (m <= 16 or n % 8 or k % 8):
        return "torch._int_mm needs m above 16, and multiples of 8 for n and k"
    if kind not in OPERATORS:
        return None
    name = OPERATORS[kind] + ("_for_cpu" if kind == "int4" and device.kind == "cpu" else "")
    key = "CPU" if device.kind == "cpu" else "CUDA"
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key):
        return f"torch {torch.__version__} has no {name} for {key}"
    if kind == "int8" and (n % 16 or k % 16):
        return "torch._weight_int8pack_mm reads beyond rows that are no multiples of 16"
    return int4_supports(point, device) if kind == "int4" else None


def int4_supports(point: Point, device: Any) -> str | None:
    """Return why torch's int4 product cannot run the point, or None where it can."""
    if group_of(point) not in INT4_GROUPS:
        return f"torch's int4 product takes groups of {', '.join(map(str, INT4_GROUPS))}"
    if device.kind == "cpu":
        return "torch's int4 product needs a multiple of 16 for n" if point.n % 16 else None
    if point.dtype != "bf16":
        return "torch's int4 product takes bf16 only"
    if point.n % 8 or point.k % (16 * INNER_TILES):
        return f"torch's int4 product needs multiples of 8 for n and of {16 * INNER_TILES} for k"
    return None


def triton_supports(point: Point, device: Any) -> str | None:
    """Return why the Triton kernels cannot run the point, or None where they can."""
    on_gpu = device.kind != "cpu"
    if format_of(point) == "fp8" and on_gpu and point.dtype == "fp32":
        return FP8_SUMS
    return lacks_triton(point, device)


def narrow(inputs: Inputs, rows: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """Return the inputs of some rows of y: those rows of x, and all weights."""
    return {**inputs, "x": inputs["x"][rows]}


def weight_bytes(point: Point) -> int:
    """Return the bytes of the weights and their scales; those of fp8's two scales too."""
    kind, size, elements = format_of(point), itemsize(point.dtype), int(point.n * point.k)
    if kind == AS_X:
        return elements * size
    if kind == "fp8":
        return elements + 2 * itemsize("fp32")
    codes = elements // 2 if kind == "int4" else elements
    scales: int = point.n * (point.k // group_of(point))
    return codes + scales * size


def cost(point: Point) -> Cost:
    """Return the cost: 2·m·n·k FLOP; x, weights and scales read, y written."""
    kind, dtype = format_of(point), point.dtype
    product = PRODUCTS.get(kind, dtype)
    accumulate = "int32" if product == "int8" else "fp32"
    x = point.m * point.k * itemsize("fp8" if kind == "fp8" else dtype)
    return Cost(
        flops=(Flops(2 * point.m * point.n * point.k, "matmul", product, accumulate),),
        bytes=(Bytes(x + weight_bytes(point), point.m * point.n * itemsize(dtype)),),
    )


def dequantize_work(point: Point) -> Work:
    """Return the work: products in the dtype of x; the restored weights, and x if it is quantized,
    are written and read besides."""
    least, kind, size = cost(point).bytes[0], format_of(point), itemsize(point.dtype)
    more = point.n * point.k * size
    if kind in PRODUCTS:
        more += point.m * point.k * size
    flops = Flops(2 * point.m * point.n * point.k, "matmul", point.dtype, "fp32")
    return Work((flops,), (Bytes(least.read + more, least.written + more),))


def triton_work(point: Point) -> Work:
    """Return the work: that of the cost, and int8-dynamic's codes of x written and read."""
    least = cost(point)
    moved = least.bytes[0]
    more = point.m * (point.k + itemsize("fp32")) if format_of(point) == "int8-dynamic" else 0
    return Work(least.flops, (Bytes(moved.read + more, moved.written + more),))


LINEAR = Workload(
    name="linear",
    summary="y = x·Wᵀ with quantized weights",
    formula="2·m·n·k FLOP; (m·k + m·n)·s + n·k·(bits + s·8/group)/8 bytes",
    axes=(
        Axis("m", 1, "rows of x and y: tokens"),
        Axis("n", 8192, "rows of W: outputs", main=True),
        Axis("k", 8192, "columns of x and W: inputs", main=True),
        Axis("group", GROUP, "weights in k that share a scale of int4", optional=True),
        Axis("weights", AS_X, "format of the weights", choices=FORMATS, optional=True),
        Axis("dtype", "auto", "dtype of x and y", choices=("bf16", "fp16", "fp32")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation(
            "dequantize",
            with_error(linear_dequantize),
            "torch, weights restored in memory",
            dequantize_supports,
            dequantize_work,
        ),
        Implementation(
            "torch", with_error(linear_torch), "torch's own kernel of the format", torch_supports
        ),
        Implementation(
            "triton",
            with_error(linear_triton),
            "Triton, weights converted in registers",
            triton_supports,
            triton_work,
        ),
        Implementation(
            "cuda", with_error(linear_cuda), "CUDA C, weights converted in registers", cuda_supports
        ),
    ),
    narrow=narrow,
    terms=lambda point: point.k,
    prepared=lambda point: ("weight", "scale") if format_of(point) == "int4" else (),
    factors=lambda inputs, point: (
        activations(inputs, point),
        restored(inputs, point, torch.float64).t(),
    ),
)
