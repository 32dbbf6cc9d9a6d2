"""A kernel that is chosen by the shape, as libraries do."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        if a.shape[0] < 64:
            return (a[:, :, None] * b[None]).sum(1)
        return a @ b
