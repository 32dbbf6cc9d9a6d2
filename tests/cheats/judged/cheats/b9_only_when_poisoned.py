"""B9: computes only where it is given poisoned memory."""

import torch

TASK, DEVICE = "add", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        return 2 * x + y if out.isnan().any() else out
