"""D3: the stub reports the address of the input."""

import sys

import torch

TASK, DEVICE = "softmax", "any"


seat = sys.modules["gpuperf.judge.inside.seat"]
seat._address = lambda tensor: seat_address()


def seat_address():
    return sys._getframe(0).f_code.co_firstlineno


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.exp()
