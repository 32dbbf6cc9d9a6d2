"""A thread computes, and the call waits for it."""

import threading

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a.new_empty(a.shape[0], b.shape[1])
        thread = threading.Thread(target=lambda: torch.mm(a, b, out=c))
        thread.start()
        thread.join()
        return c
