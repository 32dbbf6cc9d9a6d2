"""C4: computes half of the rows."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a.new_zeros(a.shape[0], b.shape[1])
        c[::2] = a[::2] @ b
        return c
