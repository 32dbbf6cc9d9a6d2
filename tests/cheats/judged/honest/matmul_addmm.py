"""The product as an addmm on zeros."""

import torch

TASK, DEVICE = "matmul", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.addmm(torch.zeros(b.shape[1]), a, b)
