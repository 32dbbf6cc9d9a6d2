"""The product of the transposes, returned as a transposed view."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (b.t() @ a.t()).t()
