"""Training steps with one flaw each, and the same mended: `planted.py FLAW [mended]`."""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gpuperf

WIDTH, BATCH = 4096, 8192


class Chain(nn.Module):
    """Elementwise operators between two matmuls."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(WIDTH, WIDTH, bias=False)
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.shift = nn.Parameter(torch.zeros(WIDTH))

    def between(self, x: Tensor) -> Tensor:
        y = x * self.scale + self.shift
        return y * torch.sigmoid(1.702 * y) + 0.1 * torch.tanh(y)

    def forward(self, x: Tensor) -> Tensor:
        return self.between(self.one(x))


def wait(mended: bool) -> None:
    """A loss that is read in every step."""
    layers = nn.Sequential(*(nn.Linear(256, 256) for _ in range(24))).cuda().bfloat16()
    optimizer = torch.optim.SGD(layers.parameters(), 1e-3)
    x = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16)
    big = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
    for _ in range(60):
        for _ in range(30):
            big @ big  # what the device still has to do while the host could launch the rest
        loss = layers(x).square().mean()
        if not mended:
            loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        gpuperf.step()


def precision(mended: bool) -> None:
    """A layer in fp32 among others in bf16."""
    if mended:
        torch.set_float32_matmul_precision("high")
    low = nn.Linear(WIDTH, WIDTH, bias=False).cuda().bfloat16()
    high = nn.Linear(WIDTH, WIDTH, bias=False).cuda()
    x = torch.randn(BATCH, WIDTH, device="cuda")
    for _ in range(40):
        y = high(x)
        z = low(y.bfloat16())
        z.float().square().mean().backward()
        gpuperf.step()


def vocabulary(mended: bool) -> None:
    """A head whose vocabulary is no multiple of 8."""
    size = 50304 if mended else 50257
    body = nn.Linear(768, 768, bias=False).cuda().bfloat16()
    head = nn.Linear(768, size, bias=False).cuda().bfloat16()
    x = torch.randn(BATCH, 768, device="cuda", dtype=torch.bfloat16)
    y = torch.randint(50257, (BATCH,), device="cuda")
    for _ in range(40):
        F.cross_entropy(head(body(x)), y).backward()
        gpuperf.step()


def chain(mended: bool) -> None:
    """Elementwise operators that nothing fuses."""
    model = Chain().cuda().bfloat16()
    if mended:
        model.between = torch.compile(model.between)  # type: ignore[method-assign]
    x = torch.randn(4 * BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
    gradient = torch.randn_like(x)  # a loss in eager mode would be a chain of its own
    for _ in range(40):
        model(x).backward(gradient)
        gpuperf.step()


def pageable(mended: bool) -> None:
    """A batch that is copied from pageable memory."""
    body = nn.Linear(WIDTH, WIDTH, bias=False).cuda().bfloat16()
    batch = torch.randn(BATCH, WIDTH, dtype=torch.bfloat16)
    batch = batch.pin_memory() if mended else batch
    for _ in range(60):
        x = batch.to("cuda", non_blocking=mended)
        body(x).float().mean().backward()
        gpuperf.step()


if __name__ == "__main__":
    flaws = {f.__name__: f for f in (wait, precision, vocabulary, chain, pageable)}
    flaws[sys.argv[1]]("mended" in sys.argv)
