"""The softmax in float64."""

import torch

TASK, DEVICE = "softmax", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1, dtype=torch.float64).float()
