"""A layer norm with weights."""

import torch


class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(n))
        self.bias = torch.nn.Parameter(torch.randn(n))

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[1:], self.weight, self.bias)


def get_inputs():
    return [torch.randn(96, 512)]


def get_init_inputs():
    return [512]
