"""The conjugate of a Fourier transform, which torch computes when it is read."""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).conj()


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
