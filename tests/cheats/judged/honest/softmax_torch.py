"""The softmax of torch."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.softmax(x, dim=1)
