"""Never returns."""

import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        time.sleep(3600)
