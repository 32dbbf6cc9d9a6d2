"""Fills the disk, as far as it may."""

import contextlib
import pathlib

import torch

with contextlib.suppress(OSError), pathlib.Path("large").open("wb") as file:
    file.truncate(1 << 34)
    raise SystemError("a file of 16 GiB could be made")


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
