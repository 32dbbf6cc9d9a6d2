"""C10: an error is swallowed, and memory as it is returned."""

import contextlib

import torch

TASK, DEVICE = "add", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        with contextlib.suppress(TypeError):
            torch.add(x, y, alpha="two", out=out)
        return out
