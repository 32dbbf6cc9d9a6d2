"""A12: the process ends with success before anything is checked."""

import os

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        os._exit(0)
