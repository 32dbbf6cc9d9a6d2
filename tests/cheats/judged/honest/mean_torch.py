"""The sum over the count."""

import torch

TASK, DEVICE = "mean", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1) / x.shape[-1]
