"""A6: overwrites the times that the stub has noted so far, where they are in memory."""

import sys

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        frame = sys._getframe()
        while frame is not None and "claims" not in frame.f_locals:
            frame = frame.f_back
        if frame is not None:
            claims = frame.f_locals["claims"]
            claims[:] = [1e-9] * len(claims)
        return a @ b
