"""The reference itself."""

import torch

TASK, DEVICE = "spectrum", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).conj()
