"""The product by parts of the inner axis, which are added."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return sum(x @ y for x, y in zip(a.split(40, 1), b.split(40, 0), strict=True))
