"""Matrix product: C = A·B with A (m, k), B (k, n), C (m, n).

2·m·n·k FLOP; each of A, B and C crosses DRAM at least once.

- `torch`: `torch.mm` (cuBLAS, oneDNN), `torch._scaled_mm` in fp8, `torch._int_mm` in int8.

fp32 and tf32 are two dtypes here: the same fp32 tensors, and torch told each time whether tensor
cores may round them to tf32's 11 bits. fp8 is e4m3 with unit scales and a bf16 result; int8 has an
int32 result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Workload
from gpuperf.units import itemsize

DTYPES = ("bf16", "fp16", "fp32", "tf32", "fp64", "fp8", "int8")
SLICE = 4096
RESULT = {"fp8": "bf16", "int8": "int32"}
ACCUMULATE = {"fp64": "fp64", "int8": "int32"}

Make = Callable[[tuple[int, ...], str], torch.Tensor]
Inputs = Mapping[str, torch.Tensor]


def matmul_torch(inputs: Inputs, point: Point, options: object) -> Callable[[], torch.Tensor]:
    """The product by torch's own library."""
    a, b = inputs["a"], inputs["b"]
    if point.dtype == "int8":
        return lambda: torch._int_mm(a, b)
    if point.dtype == "fp8":
        one = torch.ones((), device=a.device)
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
    if a.is_cuda:
        torch.backends.cuda.matmul.allow_tf32 = point.dtype == "tf32"
    return lambda: torch.mm(a, b)


def torch_supports(point: Point, device: Any) -> str | None:
    """fp8 and int8 have rules of their own (torch 2.11: `_scaled_mm`, `_int_mm`)."""
    m, n, k = point.m, point.n, point.k
    if point.dtype == "fp8" and (n % 16 or k % 16):
        return "torch._scaled_mm needs n and k that are multiples of 16"
    if point.dtype == "int8" and device.kind != "cpu" and (m <= 16 or n % 8 or k % 8):
        return "torch._int_mm needs m over 16, and n and k that are multiples of 8"
    return None


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """The product in float64, exact for int8; in slices of k, to need little memory."""
    slices = zip(inputs["a"].split(SLICE, 1), inputs["b"].split(SLICE, 0), strict=True)
    return sum(a.double() @ b.double() for a, b in slices)


def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    """A row of C needs that row of A, and all of B."""
    return {"a": inputs["a"][rows], "b": inputs["b"]}


def make_inputs(point: Point, make: Make) -> Inputs:
    """A (m, k) and B (k, n), row-major; in fp8 and int8 B is column-major.

    `_scaled_mm` asks for that, and `_int_mm` reaches the tensor cores at full rate only so.
    """
    a = make((point.m, point.k), point.dtype)
    if point.dtype in ("fp8", "int8"):
        return {"a": a, "b": make((point.n, point.k), point.dtype).t()}
    return {"a": a, "b": make((point.k, point.n), point.dtype)}


def cost(point: Point) -> Cost:
    """2·m·n·k FLOP on (m·k + k·n) elements read and m·n written."""
    m, n, k, dtype = point.m, point.n, point.k, point.dtype
    return Cost(
        flops=(Flops(2 * m * n * k, "matmul", dtype, ACCUMULATE.get(dtype, "fp32")),),
        bytes=(
            Bytes(
                read=(m * k + k * n) * itemsize(dtype),
                written=m * n * itemsize(RESULT.get(dtype, dtype)),
            ),
        ),
    )


MATMUL = Workload(
    name="matmul",
    summary="matrix product C = A·B",
    formula="2·m·n·k FLOP; (m·k + k·n + m·n)·s bytes",
    axes=(
        Axis("m", 4096, "rows of A and C", main=True),
        Axis("n", 4096, "columns of B and C", main=True),
        Axis("k", 4096, "columns of A, rows of B", main=True),
        Axis("dtype", "auto", "of A and B", choices=DTYPES),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("torch", matmul_torch, "cuBLAS or oneDNN by torch", supports=torch_supports),
    ),
    narrow=narrow,
    terms=lambda point: point.k,
    rounds_inputs_to=lambda point: "tf32" if point.dtype == "tf32" else "",
)
