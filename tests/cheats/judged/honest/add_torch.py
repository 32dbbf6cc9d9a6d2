"""One fused operation."""

import torch

TASK, DEVICE = "add", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return torch.add(y, x, alpha=2)
