"""B9: returns NaN, which no comparison finds unequal."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a.new_full((a.shape[0], b.shape[1]), float("nan"))
