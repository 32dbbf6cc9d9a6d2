"""The product in float64, rounded at the end."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (a.double() @ b.double()).float()
