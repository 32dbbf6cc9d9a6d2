"""The softmax by blocks of rows, into fresh memory."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        for begin in range(0, len(x), 16):
            y[begin : begin + 16] = torch.softmax(x[begin : begin + 16], -1)
        return y
