"""Writes beside its own file."""

import pathlib

import torch

pathlib.Path(__file__).with_name("left-behind.txt").write_text("here")


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
