"""The sum by columns, returned with other strides."""

import torch

TASK, DEVICE = "add", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return (2 * x.t() + y.t()).t()
