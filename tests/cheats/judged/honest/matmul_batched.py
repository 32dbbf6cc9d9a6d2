"""The product as a batch of one."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.bmm(a[None], b[None])[0]
