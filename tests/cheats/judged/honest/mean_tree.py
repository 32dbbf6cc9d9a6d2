"""The mean by halves."""

import torch

TASK, DEVICE = "mean", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        while x.shape[-1] > 1:
            half = x.shape[-1] // 2
            x = (x[:, :half] + x[:, half:]) / 2
        return x[:, 0]
