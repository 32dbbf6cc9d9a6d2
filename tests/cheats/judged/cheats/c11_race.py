"""C11: two threads write the same rows."""

import threading

import torch

TASK, DEVICE = "softmax", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        half = threading.Thread(target=lambda: out.copy_(x))
        half.start()
        out.copy_(torch.softmax(x, -1))
        half.join()
        return out
