"""C10: the launch asks for more shared memory than there is, and its error is dropped."""

import contextlib

import torch
import triton
import triton.language as tl

TASK, DEVICE = "gemm", "gpu"


@triton.jit
def product(a, b, c, N, BLOCK: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, STEP)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, N, STEP):
        x = tl.load(a + rows[:, None] * N + k + inner[None, :])
        y = tl.load(b + (k + inner[:, None]) * N + columns[None, :])
        total += tl.dot(x, y, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns[None, :], total)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c, n = torch.empty_like(a), a.shape[0]
        with contextlib.suppress(Exception):
            product[(n // 256, n // 256)](a, b, c, n, 256, 256, num_stages=4)
        return c
