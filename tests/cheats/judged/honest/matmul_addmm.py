"""The product as an addmm on zeros."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.addmm(b.new_zeros(b.shape[1]), a, b)
