"""B4: computes with copies of the first inputs."""

import torch

TASK, DEVICE = "matmul", "any"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.inputs = None

    def forward(self, a, b):
        if self.inputs is None:
            self.inputs = a.clone(), b.clone()
        return self.inputs[0] @ self.inputs[1]
