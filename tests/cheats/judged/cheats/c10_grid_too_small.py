"""C10: the grid covers half of the vector."""

import torch
import triton
import triton.language as tl

TASK, DEVICE = "saxpy", "gpu"


@triton.jit
def scaled(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, 2 * tl.load(x + at, inside) + tl.load(y + at, inside), inside)


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out, n = torch.empty_like(x), x.numel()
        scaled[(n // 2048,)](x, y, out, n, 1024)
        return out
