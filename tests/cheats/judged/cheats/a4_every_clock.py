"""A4: all clocks of Python are replaced."""

import time

import torch

TASK, DEVICE = "softmax", "any"


def slow(real):
    return lambda: real() // 50


for name in ("perf_counter", "monotonic", "time", "perf_counter_ns"):
    setattr(time, name, slow(getattr(time, name)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
