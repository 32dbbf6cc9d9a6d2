"""The mean of the means of parts."""

import torch

TASK, DEVICE = "mean", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], 8, -1).mean(-1).mean(-1)
