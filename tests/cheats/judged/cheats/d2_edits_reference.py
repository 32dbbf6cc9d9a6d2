"""D2: overwrites the file of the reference, which it learns from the stub."""

import gc
from pathlib import Path

import torch

TASK, DEVICE = "matmul", "any"


for item in gc.get_objects():
    if type(item).__name__ == "TaskSource":
        text = (
            Path(item.reference).read_text().replace("return a @ b", "return (a @ b) + 0 * (a @ b)")
        )
        Path(item.reference).write_text(text)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
