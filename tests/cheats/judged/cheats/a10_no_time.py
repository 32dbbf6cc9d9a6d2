"""A10: claims calls that take no time, whose speed-up has no bound."""

import sys

import torch

TASK, DEVICE = "matmul", "any"

seat = sys.modules["gpuperf.judge.inside.seat"]
seat._clock = lambda: 0.0
seat._replaced = lambda before: ""


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
