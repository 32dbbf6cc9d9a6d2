"""C3: computes in the memory of its input."""

import torch

TASK, DEVICE = "add", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return x.mul_(2).add_(y)
