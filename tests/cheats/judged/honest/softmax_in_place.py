"""The softmax in memory of its own, step by step."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = x.clone()
        e.sub_(e.amax(-1, keepdim=True)).exp_()
        return e.div_(e.sum(-1, keepdim=True))
