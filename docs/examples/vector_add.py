"""Vector addition: c = a + b, all (n,). n FLOP; two vectors read, one written.

- `torch`: the library's kernel.
- `triton`: ours, one block of 1024 elements a program.
"""

import torch
import triton
import triton.language as tl

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Workload
from gpuperf.units import itemsize


@triton.jit
def add_kernel(a, b, c, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(c + i, tl.load(a + i, mask=mask) + tl.load(b + i, mask=mask), mask=mask)


def add_torch(inputs, point, options):
    return lambda: torch.add(inputs["a"], inputs["b"])


def add_triton(inputs, point, options):
    a, b = inputs["a"], inputs["b"]
    c = torch.empty_like(a)
    grid = (triton.cdiv(point.n, 1024),)

    def call():
        add_kernel[grid](a, b, c, point.n, BLOCK=1024)
        return c

    return call


def cost(point):
    size = point.n * itemsize(point.dtype)
    flops = Flops(point.n, "elementwise", point.dtype)
    return Cost(flops=(flops,), bytes=(Bytes(read=2 * size, written=size),))


ADD = Workload(
    name="vector_add",
    summary="c = a + b",
    formula="n FLOP; 3·n·s bytes",
    axes=(
        Axis("n", 2**20, "elements", main=True),
        Axis("dtype", "auto", choices=("fp32", "bf16", "fp16")),
    ),
    inputs=lambda point, make: {name: make((point.n,), point.dtype) for name in "ab"},
    reference=lambda inputs, point: inputs["a"].double() + inputs["b"].double(),
    cost=cost,
    implementations=(
        Implementation("torch", add_torch),
        Implementation(
            "triton",
            add_triton,
            supports=lambda point, device: "needs a GPU" if device.kind == "cpu" else None,
        ),
    ),
)
