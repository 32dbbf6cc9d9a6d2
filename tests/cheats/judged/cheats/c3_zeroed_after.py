"""C3: the result is right, and the inputs are zeros afterwards."""

import torch

TASK, DEVICE = "saxpy", "gpu"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = 2 * x + y
        x.zero_()
        return out
