"""C5: rounds the factors to fp16."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a.half().float() @ b.half().float()
