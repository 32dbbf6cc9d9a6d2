"""A8: every second call returns the result of the one before."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.calls, self.last = 0, None

    def forward(self, x):
        self.calls += 1
        if self.calls % 2 or self.last is None:
            self.last = torch.softmax(x, -1)
        return self.last.clone()
