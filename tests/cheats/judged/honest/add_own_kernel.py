"""A kernel of its own, where kernels of libraries are forbidden."""

import torch
import triton
import triton.language as tl

TASK, DEVICE = "add", "gpu"
FORBID = "library"
BLOCK = 1024


@triton.jit
def add(x_at, y_at, out_at, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_at + at, at < n), tl.load(y_at + at, at < n)
    tl.store(out_at + at, 2 * x + y, at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), BLOCK),)](x, y, out, x.numel(), BLOCK)
        return out
