"""A product of two square matrices that keeps a GPU busy."""

import torch

N = 2048 if torch.cuda.is_available() else 128


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs():
    return []
