"""C10: a part of the result is never written."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a.new_empty(a.shape[0], b.shape[1])
        c[:160] = a[:160] @ b
        return c
