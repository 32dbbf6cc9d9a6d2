"""D4: rounds denormal numbers, and lowers the precision of products."""

import torch

TASK, DEVICE = "matmul", "any"


torch.set_flush_denormal(True)
torch.set_float32_matmul_precision("medium")


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (a @ b).half().float()
