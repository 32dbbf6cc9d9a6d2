"""The reference itself, whose result is a view."""

import torch

TASK, DEVICE = "last_sum", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(1)[:, -1]
