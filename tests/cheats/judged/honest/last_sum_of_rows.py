"""The sums of rows alone."""

import torch

TASK, DEVICE = "last_sum", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.sum(1)
