"""C4: one element is left out."""

import torch

TASK, DEVICE = "add", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        z = 2 * x + y
        z[17, 300] = 0
        return z
