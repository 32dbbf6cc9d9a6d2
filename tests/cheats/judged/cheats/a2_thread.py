"""A2: a thread computes after the call has returned."""

import threading
import time

import torch

TASK, DEVICE = "matmul", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a.new_empty(a.shape[0], b.shape[1])

        def late():
            time.sleep(0.05)
            torch.mm(a, b, out=c)

        threading.Thread(target=late, daemon=True).start()
        return c
