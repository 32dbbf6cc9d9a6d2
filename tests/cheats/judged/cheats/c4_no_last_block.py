"""C4: the last block of the vector is not computed."""

import torch

TASK, DEVICE = "saxpy", "gpu"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out, n = torch.zeros_like(x), x.numel() - 1024
        torch.add(y[:n], x[:n], alpha=2, out=out[:n])
        return out
