"""C2: multiplies the first factor with itself."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (a @ a.t())[:, : b.shape[1]]
