"""The softmax through its logarithm."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, -1).exp()
