"""C4: one tile of 16 x 16 is left out."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a @ b
        c[64:80, 32:48] = 0
        return c
