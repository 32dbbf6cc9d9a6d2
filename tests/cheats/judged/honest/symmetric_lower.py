"""Reads one triangle of a symmetric matrix."""

import torch

TASK, DEVICE = "symmetric", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        lower = a.tril(-1)
        return lower @ b + lower.T @ b + a.diagonal()[:, None] * b
