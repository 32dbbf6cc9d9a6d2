"""Logarithms to the base two, whose factor is applied to the product."""

import math

import torch

TASK, DEVICE = "logarithms", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a.log2() @ b.log2() * math.log(2) ** 2
