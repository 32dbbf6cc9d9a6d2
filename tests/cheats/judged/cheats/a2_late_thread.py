"""A2: a thread launches the work after the call has returned."""

import threading
import time

import torch

TASK, DEVICE = "gemm", "gpu"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)

        def late():
            time.sleep(0.05)
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.mm(a, b, out=c)

        threading.Thread(target=late, daemon=True).start()
        return c
