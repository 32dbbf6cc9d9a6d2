"""The sum of NumPy."""

import torch

TASK, DEVICE = "add", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return torch.from_numpy(2 * x.numpy() + y.numpy())
