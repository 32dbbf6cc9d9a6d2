"""C5: rounds the result to fp16."""

import torch

TASK, DEVICE = "add", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return (2 * x + y).half().float()
