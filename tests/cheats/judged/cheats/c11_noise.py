"""C11: two calls on the same inputs differ."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (a @ b) * (1 + 1e-3 * torch.rand((), device=a.device))
