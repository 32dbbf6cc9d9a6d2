"""Compute the cross-entropy of logits x·Wᵀ from x (m, k), W (v, k) and targets, and its gradients.

2·m·v·k FLOP forward and 4·m·v·k backward, for dx and dW. The cost reads x, W and targets once and
writes the losses (m,), or dx and dW: logits (m, v) of a vocabulary of 128 Ki have 16 times the
bytes of x with k = 8 Ki, and need not be stored. Targets are ignored as in `cross_entropy`.

- `eager`: `F.cross_entropy` of `F.linear`, which stores the logits, and their softmax for a
  backward.
- `compile`: the same function and its gradients under torch.compile.
- `torch`: `F.linear_cross_entropy` in chunks of rows, where torch has it (2.13).
- `chunked`: torch operations on CHUNK bytes of logits at a time; dW is summed in fp32.
- `triton`: Triton kernels that keep a maximum and a sum of each row, and store none of the logits.
  The backward computes them again (6·m·v·k FLOP in all), and stores the gradient of a chunk.

Memory beside inputs and results is of order m·v for `eager` and `compile`, 4·v·k bytes and a chunk
of CHUNK bytes for `chunked`, 8·m·k bytes and a chunk for `triton`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpuperf.kernels._linear_cross_entropy import (
    CHUNK,
    chunk_of,
    gradients_call,
    losses_call,
    tiles_for,
)
from gpuperf.kernels._modes import MODE, Backward, by_mode, by_torch, of_mode
from gpuperf.kernels.cross_entropy import IGNORED, IGNORED_TARGETS, SPREAD, draw_targets, losses_of

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import Tuned, compiled, lacks_compiler, lacks_triton, tune
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], Any]
Losses = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

LARGEST_PIECE = 2**27  # float64 logits that the reference holds at a time: 1 GiB
NAMES = ("x", "weight")


def eager(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the losses (m,) by way of all logits."""
    return losses_of(F.linear(x, weight), targets)


def by_library(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the losses (m,) by torch's function, in the chunks that it chooses."""
    losses: torch.Tensor = F.linear_cross_entropy(
        x,
        weight,
        targets,
        reduction="none",
        ignore_index=IGNORED,
        options=torch.nn.LinearCrossEntropyOptions(),
    )
    return losses


def build_of(function: Callable[..., torch.Tensor]) -> Callable[[Inputs, Point, object], Call]:
    """Return the build of *function*(x, weight, targets), with autograd's gradients."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        def losses(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return function(x, weight, inputs["targets"])

        call: Call = by_torch(point.mode, losses, inputs, NAMES)
        return call

    return build


def linear_compile(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the eager function under torch.compile."""
    return build_of(compiled(eager))(inputs, point, options)


def library_supports(point: Point, device: Any) -> str | None:
    """Return why torch's function cannot run, or None where it can."""
    if hasattr(torch.nn, "LinearCrossEntropyOptions"):
        return None
    return f"torch {torch.__version__} has no F.linear_cross_entropy"


def chunk_gradients(
    inputs: Inputs, rows: slice, dx: torch.Tensor, dweight: torch.Tensor
) -> torch.Tensor:
    """Compute some rows of dx, add their part of dW to *dweight*, and return their losses."""
    x, weight, targets, dy = (inputs[name] for name in (*NAMES, "targets", "dy"))
    logits = F.linear(x[rows], weight)
    loss = losses_of(logits, targets[rows])
    counted = targets[rows] != IGNORED
    share = torch.softmax(logits, 1)
    place = targets[rows].clamp_min(0)[:, None]
    share.scatter_add_(1, place, share.new_full(place.shape, -1.0))
    share.mul_((dy[rows] * counted)[:, None])
    torch.mm(share, weight, out=dx[rows])
    dweight.add_(torch.mm(share.t(), x[rows]))
    return loss


def linear_chunked(inputs: Inputs, point: Point, options: object) -> Call:
    """Build torch operations on chunks of rows; a backward computes the logits again."""
    x, weight = inputs["x"], inputs["weight"]
    each = max(1, CHUNK // (point.v * x.element_size()))
    chunks = [slice(start, min(start + each, point.m)) for start in range(0, point.m, each)]

    def forward() -> torch.Tensor:
        return torch.cat([eager(x[c], weight, inputs["targets"][c]) for c in chunks])

    def backward() -> tuple[torch.Tensor, ...]:
        dx, dweight = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
        loss = torch.cat([chunk_gradients(inputs, rows, dx, dweight) for rows in chunks])
        return loss, dx, dweight.to(weight.dtype)

    return {"fwd": forward, "bwd": lambda: backward()[1:], "fwd+bwd": backward}[point.mode]


def linear_triton(inputs: Inputs, point: Point, options: object) -> Tuned:
    """Build the kernels of the mode, each with its fastest tile."""
    lse = inputs["x"].new_empty(point.m, dtype=torch.float32)
    candidates = tiles_for(inputs["x"])
    # The forward of mode `bwd` is not part of the measured call, and so is not tuned.
    losses = tune(
        partial(losses_call, inputs, lse), candidates if "fwd" in point.mode else candidates[:1]
    )
    if point.mode == "fwd":
        return losses
    losses()
    gradients = gradients_call(inputs, lse)

    def both() -> tuple[torch.Tensor, Backward]:
        return losses(), lambda dy: gradients()  # which reads inputs["dy"]

    chosen = {f"backward_{name}": value for name, value in gradients.chosen.items()}
    if point.mode == "fwd+bwd":
        chosen |= losses.chosen
    return Tuned(by_mode(point.mode, inputs, both, losses), chosen)


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute losses and gradients in float64, for some rows at a time."""
    x, weight, targets = inputs["x"], inputs["weight"].double(), inputs["targets"]
    loss = x.new_empty(x.shape[0], dtype=torch.float64)
    dx, dweight = (torch.zeros_like(inputs[name], dtype=torch.float64) for name in NAMES)
    rows = max(1, LARGEST_PIECE // weight.shape[0])
    for piece in (slice(start, start + rows) for start in range(0, x.shape[0], rows)):
        value, counted = x[piece].double(), targets[piece] != IGNORED
        place = targets[piece].clamp_min(0)[:, None]
        logits = value @ weight.T
        norm = torch.logsumexp(logits, 1)
        loss[piece] = torch.where(counted, norm - logits.gather(1, place)[:, 0], 0.0)
        if point.mode != "fwd":
            share = logits.sub_(norm[:, None]).exp_()
            share.scatter_add_(1, place, share.new_full(place.shape, -1.0))
            share *= torch.where(counted, inputs["dy"][piece].double(), 0.0)[:, None]
            dx[piece] = share @ weight
            dweight += share.T @ value
    return {"fwd": loss, "bwd": (dx, dweight), "fwd+bwd": (loss, dx, dweight)}[point.mode]


def make_inputs(point: Point, make: Callable[..., torch.Tensor]) -> Inputs:
    """Draw x, W that gives logits of a standard deviation of SPREAD, targets, and dy."""
    weight = make((point.v, point.k), point.dtype).mul_(SPREAD * point.k**-0.5)
    inputs = {"x": make((point.m, point.k), point.dtype), "weight": weight}
    inputs["targets"] = draw_targets(point, make)
    if point.mode != "fwd":
        inputs["dy"] = make((point.m,), point.dtype)
    return inputs


def narrow(inputs: Inputs, rows: torch.Tensor) -> Inputs | None:
    """Return the inputs of some losses; None with a gradient, which needs all rows of x."""
    if "dy" in inputs:
        return None
    return {**inputs, "x": inputs["x"][rows], "targets": inputs["targets"][rows]}


def flops(point: Point, forward: int = 2, backward: int = 4) -> tuple[Flops, ...]:
    """Return the FLOPs of the products of the mode, given those for each of the m·v·k."""
    count = of_mode(point.mode, forward, backward) * point.m * point.v * point.k
    return (Flops(count, "matmul", point.dtype, "fp32"),)


def cost(point: Point) -> Cost:
    """Return the least: inputs are read once; losses, gradients or all are written once."""
    m, v, k, size = point.m, point.v, point.k, itemsize(point.dtype)
    given = (m + v) * k
    read = size * (given + m * (point.mode != "fwd")) + m * itemsize("int64")
    return Cost(flops(point), (Bytes(read, size * of_mode(point.mode, m, given)),))


def stored_work(logits: tuple[int, int], gradient: tuple[int, int]) -> Callable[[Point], Work]:
    """Return the work of a forward and a backward that read and write (m, v) this many times."""

    def work(point: Point) -> Work:
        each, (least,) = point.m * point.v * itemsize(point.dtype), cost(point).bytes
        read, written = (of_mode(point.mode, logits[i], gradient[i]) * each for i in (0, 1))
        return Work(flops(point), (Bytes(least.read + read, least.written + written),))

    return work


def triton_work(point: Point) -> Work:
    """Return the work: a backward multiplies once more, and writes and reads G and sums of dx."""
    m, v, k, size = point.m, point.v, point.k, itemsize(point.dtype)
    (least,) = cost(point).bytes
    back, sums = point.mode != "fwd", itemsize("fp32") * m * k
    chunks = -(-v // chunk_of(m, v, size))
    reads = 2 * m * v * size + (v + 2 * chunks * m) * k * size + chunks * sums
    writes = m * v * size + chunks * sums
    moved = Bytes(least.read + back * reads, least.written + back * writes)
    return Work(flops(point, 2, 6), (moved,))


def stored_roundings(point: Point) -> int:
    """Return the roundings of what stores the logits.

    A stored logit of up to 16 is off by half a unit of 16, and its share of the row by 8 roundings.
    Where that share is nearly all of a row, elements of dx are off by 8 roundings of one of W, of
    which the largest of some 10^8 is 5.6 times the size of the row: by 45 roundings, and a
    tolerance is 4 times one more than those declared. (Eager's dx was off by 24.4 with v 128 Ki.)
    """
    return 5 if point.mode == "fwd" else 11


LINEAR_CROSS_ENTROPY = Workload(
    name="linear_cross_entropy",
    summary="cross-entropy of x·Wᵀ and its gradients",
    formula="2·m·v·k FLOP forward, 4·m·v·k backward; inputs and results once, no logits",
    axes=(
        Axis("m", 8192, "rows of x: tokens"),
        Axis("v", 128 * 1024, "rows of W: the vocabulary", main=True),
        Axis("k", 4096, "columns of x and W"),
        IGNORED_TARGETS,
        MODE,
        Axis("dtype", "auto", "dtype of x, W and losses", choices=("fp32", "bf16", "fp16")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation(
            "eager",
            build_of(eager),
            "torch, all logits stored",
            work=stored_work((1, 2), (4, 2)),
            roundings=stored_roundings,
        ),
        Implementation(
            "compile",
            linear_compile,
            "torch.compile of eager",
            lacks_compiler,
            roundings=stored_roundings,
        ),
        Implementation(
            "torch",
            build_of(by_library),
            "torch, F.linear_cross_entropy",
            library_supports,
            roundings=stored_roundings,
        ),
        Implementation(
            "chunked", linear_chunked, "torch, chunks of rows", roundings=stored_roundings
        ),
        Implementation(
            "triton",
            linear_triton,
            "Triton, no logits stored, tuned",
            lacks_triton,
            triton_work,
            roundings=lambda point: 1,
        ),
    ),
    narrow=narrow,
    terms=lambda point: max(point.m, point.v, point.k),
    # Logits of up to 16 are rounded to the dtype of x, and so are shares.
    roundings=lambda point: 5,
    prepared=lambda point: (*NAMES, "targets") if point.mode == "bwd" else (),
)
