"""The layer norm of torch."""

import torch

TASK, DEVICE = "norm", "any"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(sizes[0]))
        self.bias = torch.nn.Parameter(torch.randn(sizes[0]))

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[1:], self.weight, self.bias, 1e-5)
