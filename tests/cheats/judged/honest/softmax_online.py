"""The softmax with a running maximum and sum, by parts of the row."""

import torch

TASK, DEVICE = "softmax", "any"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        m = x.new_full((x.shape[0], 1), -torch.inf)
        s = x.new_zeros(x.shape[0], 1)
        for part in x.split(256, 1):
            n = torch.maximum(m, part.amax(1, keepdim=True))
            s = s * (m - n).exp() + (part - n).exp().sum(1, keepdim=True)
            m = n
        return (x - m).exp() / s
