"""C1: softmax without the maximum, which overflows."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = x.exp()
        return e / e.sum(-1, keepdim=True)
