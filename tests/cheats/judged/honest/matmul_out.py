"""The product into fresh memory."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a.new_empty(a.shape[0], b.shape[1])
        return torch.mm(a, b, out=c)
