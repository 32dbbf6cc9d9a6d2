"""The softmax in float64."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1, dtype=torch.float64).float()
