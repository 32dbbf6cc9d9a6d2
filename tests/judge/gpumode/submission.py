"""An honest submission."""

#!POPCORN leaderboard rowsum

import torch


def custom_kernel(data):
    x, out = data
    torch.sum(x, -1, out=out)
    return out
