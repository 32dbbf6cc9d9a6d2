"""The product of NumPy."""

import torch

TASK, DEVICE = "matmul", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.from_numpy(a.numpy() @ b.numpy())
