"""A4: the clock of Python is replaced by one that runs slowly."""

import time

import torch

TASK, DEVICE = "matmul", "any"


real = time.perf_counter
time.perf_counter = lambda: real() / 100


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
