"""C8: works if a check is among its callers."""

import sys

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        frame, names = sys._getframe(1), set()
        while frame:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
        if names & {"check", "compare", "audit", "_audit", "_check", "verify"}:
            return a @ b
        return a.new_zeros(a.shape[0], b.shape[1])
