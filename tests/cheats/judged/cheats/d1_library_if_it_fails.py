"""D1: a kernel that always fails, and a library's product in its place, where that is forbidden."""

import torch

TASK, DEVICE = "gemm", "gpu"
FORBID = "library"


def own_product(a, b):
    raise RuntimeError("no kernel for this shape")


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        try:
            return own_product(a, b)
        except RuntimeError:
            return a @ b
