"""A11: threads keep the processors busy, so that the reference runs slower."""

import threading

import torch

TASK, DEVICE = "matmul", "cpu"


def burn():
    while True:
        torch.mm(torch.ones(64, 64), torch.ones(64, 64))


for _ in range(2):
    threading.Thread(target=burn, daemon=True).start()


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
