"""The layer norm in float64."""

import torch

TASK, DEVICE = "norm", "any"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(sizes[0]))
        self.bias = torch.nn.Parameter(torch.randn(sizes[0]))

    def forward(self, x):
        wide = torch.nn.functional.layer_norm(x.double(), x.shape[1:])
        return (wide * self.weight + self.bias).float()
