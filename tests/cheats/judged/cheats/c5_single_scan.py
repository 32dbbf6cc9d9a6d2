"""C5: sums in fp32 where float64 is asked for."""

import torch

TASK, DEVICE = "scan_double", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.float().cumsum(1).double()
