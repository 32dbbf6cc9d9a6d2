"""A product that is rounded to fp16 within the reference."""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return (a.half() @ b.half()).float()


def get_inputs():
    return [torch.randn(128, 256), torch.randn(256, 128)]


def get_init_inputs():
    return []
