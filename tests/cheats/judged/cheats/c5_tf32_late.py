"""C5: TF32 only after twenty calls."""

import torch

TASK, DEVICE = "gemm", "gpu"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, a, b):
        self.calls += 1
        torch.backends.cuda.matmul.allow_tf32 = self.calls > 20
        return a @ b
