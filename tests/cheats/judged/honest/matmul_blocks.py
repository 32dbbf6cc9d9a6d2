"""The product by blocks of rows."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.cat([part @ b for part in a.split(48)])
