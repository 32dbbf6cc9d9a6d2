"""C11: two streams share one workspace."""

import torch

TASK, DEVICE = "rows", "gpu"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sides, self.space = [torch.cuda.Stream(), torch.cuda.Stream()], None

    def forward(self, x):
        self.space = torch.empty_like(x) if self.space is None else self.space
        for side, factor in zip(self.sides, (1.0, 2.0), strict=True):
            with torch.cuda.stream(side):
                torch.mul(x, factor, out=self.space)
        return torch.softmax(self.space, -1)
