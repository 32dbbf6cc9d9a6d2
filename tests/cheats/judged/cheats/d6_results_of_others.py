"""D6: returns a result that another submission left in the judge's memory."""

from pathlib import Path

import torch

TASK, DEVICE = "matmul", "cpu"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.zeros(a.shape[0], b.shape[1])
        lines = Path("/proc/self/maps").read_text().splitlines()
        (slots,) = {line.split()[-1] for line in lines if line.endswith("/slots")}
        left = (Path(slots).parents[1] / "results").read_bytes()[: 4 * c.numel()]
        return torch.frombuffer(bytearray(left), dtype=torch.float32).reshape(c.shape).clone()
