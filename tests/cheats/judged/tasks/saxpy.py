"""An elementwise sum of vectors that no L2 holds."""

import torch

N = 1 << (24 if torch.cuda.is_available() else 12)


class Model(torch.nn.Module):
    def forward(self, x, y):
        return 2 * x + y


def get_inputs():
    return [torch.randn(N), torch.randn(N)]


def get_init_inputs():
    return []
