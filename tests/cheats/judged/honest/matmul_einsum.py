"""The product as an einsum."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.einsum("mk,kn->mn", a, b)
