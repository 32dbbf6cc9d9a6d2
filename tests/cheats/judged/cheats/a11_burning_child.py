"""A11: a child process keeps a processor busy."""

import os

import torch

TASK, DEVICE = "add", "cpu"


if os.fork() == 0:
    os.setsid()
    while True:
        pass


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        return 2 * x + y
