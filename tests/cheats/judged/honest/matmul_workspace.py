"""The product through a workspace that is kept, copied out at the end."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.space = None

    def forward(self, a, b):
        if self.space is None:
            self.space = a.new_empty(a.shape[0], b.shape[1])
        return torch.mm(a, b, out=self.space).clone()
