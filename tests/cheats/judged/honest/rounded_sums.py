"""Sums in fp32, rounded to fp16 once."""

import torch

TASK, DEVICE = "rounded", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (a.half().float() @ b.half().float()).half().float()
