"""The mean in float64."""

import torch

TASK, DEVICE = "mean", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.mean(-1, dtype=torch.float64).float()
