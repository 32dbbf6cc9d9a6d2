"""A product of lower triangular matrices."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.tril(a @ b)


def get_inputs():
    return [torch.randn(128, 128).tril(), torch.randn(128, 128).tril()]


def get_init_inputs():
    return []
