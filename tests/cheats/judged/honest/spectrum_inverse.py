"""The inverse transform of real numbers, times their count."""

import torch

TASK, DEVICE = "spectrum", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.fft.ifft(x, norm="forward")
