"""A12: writes a result to every open descriptor."""

import contextlib
import os

import torch

TASK, DEVICE = "add", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        for descriptor in range(3, 1024):
            with contextlib.suppress(OSError):
                os.write(descriptor, b'{"type": "done", "number": 1, "claims": [], "places": []}\n')
        return torch.zeros_like(x)
