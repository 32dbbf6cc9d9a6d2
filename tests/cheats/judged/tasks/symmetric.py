"""A product with a symmetric matrix."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    a = torch.randn(128, 128)
    return [a + a.T, torch.randn(128, 96)]


def get_init_inputs():
    return []
