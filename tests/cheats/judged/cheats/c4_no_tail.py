"""C4: leaves the last rows out."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        y[:-2] = torch.softmax(x[:-2], -1)
        return y
