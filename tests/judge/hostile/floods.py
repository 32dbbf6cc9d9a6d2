"""Writes to stdout and stderr without end."""

import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        for _ in range(400):
            os.write(1, b"x" * 100_000)
            os.write(2, b"valid\n" * 10_000)
        return a @ b
