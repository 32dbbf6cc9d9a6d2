"""C2: returns an input."""

import torch

TASK, DEVICE = "add", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return y
