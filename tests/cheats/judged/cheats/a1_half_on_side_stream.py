"""A1: computes the lower half on a stream that is not joined."""

import torch

TASK, DEVICE = "gemm", "gpu"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, a, b):
        c, half = torch.empty_like(a), a.shape[0] // 2
        torch.mm(a[:half], b, out=c[:half])
        with torch.cuda.stream(self.side):
            torch.mm(a[half:], b, out=c[half:])
        return c
