"""C2: returns a copy of an input, which costs the bandwidth of a result."""

import torch

TASK, DEVICE = "gemm", "gpu"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a.clone()
