"""The softmax by its formula."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)
