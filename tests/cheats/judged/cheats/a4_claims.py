"""A4: the stub's clock is replaced, and so is the test for replaced functions."""

import sys
import time

import torch

TASK, DEVICE = "add", "any"


seat = sys.modules["gpuperf.judge.inside.seat"]
real = seat._clock
seat._clock = lambda: real() / 100
seat._replaced = lambda before: ""


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()

    def forward(self, x, y):
        return 2 * x + y

    def __call__(self, x, y):
        time.sleep(0.002)
        return 2 * x + y
