"""C5: returns a shorter dtype."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1).half()
