"""Something is built at the first call, for its shape."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.shape, self.blocks = None, []

    def forward(self, a, b):
        if self.shape != a.shape:
            self.shape, self.blocks = a.shape, [(0, 96), (96, a.shape[0])]
        return torch.cat([a[begin:end] @ b for begin, end in self.blocks])
