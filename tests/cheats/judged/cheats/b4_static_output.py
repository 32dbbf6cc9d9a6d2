"""B4: every call returns the same memory, as a graph does."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.out = None

    def forward(self, a, b):
        if self.out is None:
            self.out = a.new_empty(a.shape[0], b.shape[1])
        torch.mm(a, b, out=self.out)
        return self.out
