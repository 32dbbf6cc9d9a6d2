"""The softmax of torch."""

import torch

TASK, DEVICE = "softmax", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.softmax(x, dim=1)
