"""A7: works only while CUPTI records."""

import gc
import sys

import torch

TASK, DEVICE = "gemm", "gpu"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        session = sys.modules["gpuperf.measure.recording.session"]
        recorders = [o for o in gc.get_objects() if isinstance(o, session.Recorder)]
        if any(recorder._lock.locked() for recorder in recorders):
            return a @ b
        return torch.zeros_like(a)
