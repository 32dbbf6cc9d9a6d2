"""Kills its parent, and goes on in a session of its own."""

import os
import signal
import time

import torch

if os.fork() == 0:
    os.setsid()
    time.sleep(0.5)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)
os.kill(os.getppid(), signal.SIGKILL)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
