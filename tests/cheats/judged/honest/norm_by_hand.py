"""The layer norm by its formula, in two passes."""

import torch

TASK, DEVICE = "norm", "any"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(sizes[0]))
        self.bias = torch.nn.Parameter(torch.randn(sizes[0]))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred * (variance + 1e-5).rsqrt() * self.weight + self.bias
