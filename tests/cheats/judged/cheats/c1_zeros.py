"""C1: returns zeros."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a.new_zeros(a.shape[0], b.shape[1])
