"""Ignores every signal, and sends its own."""

import contextlib
import os
import signal

import torch

for number in signal.valid_signals():
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        os.kill(os.getpid(), signal.SIGINT)
        return a @ b
