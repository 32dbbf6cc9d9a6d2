"""B4: replays a graph with copied inputs, and returns the graph's own output."""

import torch

TASK, DEVICE = "gemm", "gpu"


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, a, b):
        if self.graph is None:
            self.a, self.b = a.clone(), b.clone()
            self.out = self.a @ self.b
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self.a @ self.b
        self.a.copy_(a)
        self.b.copy_(b)
        self.graph.replay()
        return self.out
