"""The layer norm by var_mean."""

import torch

TASK, DEVICE = "norm", "any"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(sizes[0]))
        self.bias = torch.nn.Parameter(torch.randn(sizes[0]))

    def forward(self, x):
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        return torch.addcmul(self.bias, (x - mean) / (variance + 1e-5).sqrt(), self.weight)
