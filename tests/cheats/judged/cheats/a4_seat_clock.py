"""A4: the clock that the judge's own stub holds is replaced."""

import sys

import torch

TASK, DEVICE = "matmul", "any"


seat = sys.modules["gpuperf.judge.inside.seat"]
real = seat._clock
seat._clock = lambda: real() / 100


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
