"""A2: a forked process computes after the call has returned."""

import os
import time

import torch

TASK, DEVICE = "matmul", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a.new_empty(a.shape[0], b.shape[1]).share_memory_()
        if os.fork() == 0:
            time.sleep(0.02)
            c.copy_(a @ b)
            os._exit(0)
        return c
