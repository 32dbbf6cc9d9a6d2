"""Compute the cross-entropy of logits x (m, v) and targets t (m,), and its gradient.

The loss of a row is log Σ exp(x) − x[t], and 0 where the target is −100, as in torch: `ignored`
says how many are. The gradient is dx = (softmax(x) − onehot(t))·dy, with dy (m,), and 0 in such
rows.

Forward: m·v exponentials, and a maximum, a difference and a sum for each, 3·m·v FLOP; x is read
once. Backward: m·v exponentials, and two differences and a product for each; x is read and dx
written.

- `torch`: `F.cross_entropy`, which writes the logarithms of the softmax for its backward.
- `compile`: the same function and its gradient under torch.compile.
- `triton`: a Triton kernel that reads a row once, with a maximum and a sum for each 16 bytes that a
  thread loads; its backward reads the row again, and several programs may share one. Rows may begin
  at any element: all blocks but the first and the last of a row are whole lines of 128 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from gpuperf.kernels._modes import MODE, Backward, by_mode, by_torch, of_mode

from gpuperf import Axis, Bytes, Cost, Flops, Implementation, Point, Work, Workload
from gpuperf.jit import Tuned, compiled, jit, lacks_compiler, lacks_triton, tl, triton, tune
from gpuperf.units import itemsize

Make = Callable[..., torch.Tensor]
Inputs = Mapping[str, torch.Tensor]
Tiling = Mapping[str, int]
Call = Callable[[], Any]

IGNORED = -100  # target of a row without a loss, as in torch
IGNORED_TARGETS = Axis(
    "ignored", "none", "targets that are ignored", choices=("none", "third"), optional=True
)
SPREAD = 3.0  # standard deviation of logits: some classes of each row are likely
LARGEST_PIECE = 2**27  # float64 logits that the reference holds at a time: 1 GiB
VECTOR = 16  # bytes that a thread loads at a time
LINE = 128  # bytes of a line of the L2: blocks begin at one, so that warps load whole lines

# Warps, the vectors of a thread, and AHEAD.
TRIED = ((4, 4, 4), (4, 4, 5), (4, 8, 3), (8, 2, 4), (8, 2, 1), (16, 2, 1), (4, 2, 1))
# VECTORS is the number of vectors of a block. AHEAD − 1 blocks are loaded before they are needed.
TILINGS = tuple(
    {"VECTORS": 32 * warps * each, "warps": warps, "AHEAD": ahead} for warps, each, ahead in TRIED
)

# GROUP is the number of blocks of a row that a program of the backward has; 0: all.
GRADIENTS = tuple(
    {"VECTORS": 32 * warps * each, "warps": warps, "AHEAD": ahead, "GROUP": group}
    for warps, each, ahead, group in (
        *((4, 1, 3, 4), (8, 1, 3, 4), (4, 1, 1, 4), (8, 1, 1, 4), (4, 2, 1, 1)),
        *((4, 2, 1, 0), (8, 2, 1, 0)),
    )
)


@jit
def start_of(row, v, ALIGN: tl.constexpr):
    """Return the last multiple of ALIGN elements that is not after the row, and what is between."""
    begin = row.to(tl.int64) * v
    start = begin // ALIGN * ALIGN
    return tl.multiple_of(start, ALIGN), (begin - start).to(tl.int32)


@jit
def block_at(x, block, low, high, MASKED: tl.constexpr, VECTORS: tl.constexpr, WIDTH: tl.constexpr):
    """Load a block (VECTORS, WIDTH) of x; −∞ where its elements are not from *low* to *high*."""
    i = tl.arange(0, VECTORS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    i += block * (VECTORS * WIDTH)
    inside = (i >= low) & (i < high)
    return tl.load(x + i, inside, float("-inf")) if MASKED else tl.load(x + i)


@jit
def add_block(value, most, total):
    """Add a block to the maximum and the sum of exponentials of each of its vectors."""
    value = value.to(tl.float32)
    risen = tl.maximum(most, tl.max(value, 1))
    # In base 2, by one multiply-add and one instruction for each element. An old sum's factor is 1
    # where the maximum does not rise: fused, most · log₂ e − shift would be the rounding of shift,
    # which is 4e30 beside −2e38.
    shift = risen * 1.4426950408889634
    power = tl.exp2(value * 1.4426950408889634 - shift[:, None])
    total = total * tl.exp2((most - risen) * 1.4426950408889634) + tl.sum(power, 1)
    return risen, total


@jit
def losses_kernel(
    x,
    targets,
    loss,
    lse,
    v,
    ignored,
    VECTORS: tl.constexpr,
    WIDTH: tl.constexpr,
    ALIGN: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Compute the loss of a row, and the logarithm of its sum of exponentials, in each program."""
    row = tl.program_id(0)
    start, low = start_of(row, v, ALIGN)
    x += start
    high, blocks = low + v, tl.cdiv(low + v, VECTORS * WIDTH)
    # What does not wait for another block is loaded first: a row ends without waits for memory.
    target = tl.load(targets + row)
    counts = target != ignored
    hit = tl.load(x + low + target, counts, 0.0).to(tl.float32)
    first = block_at(x, 0, low, high, True, VECTORS, WIDTH)
    last = block_at(x, tl.maximum(blocks - 1, 1), low, high, True, VECTORS, WIDTH)
    # Finite in base 2 too, since −inf − (−inf) is NaN, and a vector may be outside of the row.
    most = tl.full((VECTORS,), -2e38, tl.float32)
    total = tl.zeros((VECTORS,), tl.float32)
    most, total = add_block(first, most, total)
    for block in tl.range(1, blocks - 1, num_stages=AHEAD):
        value = block_at(x, block, low, high, False, VECTORS, WIDTH)
        most, total = add_block(value, most, total)
    most, total = add_block(last, most, total)  # -inf where the first block is the last
    peak = tl.max(most, 0)
    norm = peak + tl.log(tl.sum(total * tl.exp(most - peak), 0))
    tl.store(lse + row, norm)
    tl.store(loss + row, tl.where(counts, norm - hit, 0.0).to(loss.dtype.element_ty))


@jit
def gradient_block(
    x,
    dx,
    block,
    low,
    high,
    norm,
    target,
    grad,
    MASKED: tl.constexpr,
    VECTORS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Compute a block of dx from that of x; *norm* is in base 2, *target* an element of a block."""
    value = block_at(x, block, low, high, MASKED, VECTORS, WIDTH).to(tl.float32)
    share = tl.exp2(value * 1.4426950408889634 - norm)
    i = tl.arange(0, VECTORS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    i += block * (VECTORS * WIDTH)
    slope = (tl.where(i == target, share - 1.0, share) * grad).to(dx.dtype.element_ty)
    if MASKED:
        tl.store(dx + i, slope, (i >= low) & (i < high))
    else:
        tl.store(dx + i, slope)


@jit
def gradient_kernel(
    x,
    targets,
    lse,
    dy,
    dx,
    v,
    ignored,
    group,
    parts,
    VECTORS: tl.constexpr,
    WIDTH: tl.constexpr,
    ALIGN: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Compute *group* blocks of a row of dx in each of its *parts* programs."""
    row, begin = tl.program_id(0) // parts, tl.program_id(0) % parts * group
    start, low = start_of(row, v, ALIGN)
    x += start
    dx += start
    high, blocks = low + v, tl.cdiv(low + v, VECTORS * WIDTH)
    end = tl.minimum(begin + group, blocks)
    target = tl.load(targets + row)
    grad = tl.where(target == ignored, 0.0, tl.load(dy + row).to(tl.float32))
    norm = tl.load(lse + row) * 1.4426950408889634
    target = target.to(tl.int32) + low
    if begin == 0:
        gradient_block(x, dx, 0, low, high, norm, target, grad, True, VECTORS, WIDTH)
    for block in tl.range(tl.maximum(begin, 1), tl.minimum(end, blocks - 1), num_stages=AHEAD):
        gradient_block(x, dx, block, low, high, norm, target, grad, False, VECTORS, WIDTH)
    if (blocks > 1) & (end == blocks) & (begin < end):
        last = blocks - 1
        gradient_block(x, dx, last, low, high, norm, target, grad, True, VECTORS, WIDTH)


def constants(x: torch.Tensor, tiling: Tiling) -> dict[str, int]:
    """Return the constants of a launch with *tiling*."""
    width = VECTOR // x.element_size()
    known = {"WIDTH": width, "ALIGN": LINE // x.element_size(), "num_warps": tiling["warps"]}
    return known | {name: tiling[name] for name in ("VECTORS", "AHEAD")}


def losses_call(inputs: Inputs, lse: torch.Tensor, tiling: Tiling) -> Call:
    """Return the call that computes the losses (m,), and *lse* for the gradient."""
    x, targets = inputs["x"], inputs["targets"]
    m, v = x.shape
    loss, launch = x.new_empty(m), constants(x, tiling)

    def call() -> torch.Tensor:
        losses_kernel[(m,)](x, targets, loss, lse, v, IGNORED, **launch)
        return loss

    return call


def gradient_call(inputs: Inputs, lse: torch.Tensor, tiling: Tiling) -> Call:
    """Return the call that computes dx (m, v) from *lse*."""
    x, targets, dy = inputs["x"], inputs["targets"], inputs["dy"]
    m, v = x.shape
    dx, launch = torch.empty_like(x), constants(x, tiling)
    most = triton.cdiv(v + launch["ALIGN"] - 1, launch["VECTORS"] * launch["WIDTH"])
    group = tiling["GROUP"] or most
    parts = triton.cdiv(most, group)
    arguments = (x, targets, lse, dy, dx, v, IGNORED, group, parts)

    def call() -> torch.Tensor:
        gradient_kernel[(m * parts,)](*arguments, **launch)
        return dx

    return call


def cross_entropy_triton(inputs: Inputs, point: Point, options: object) -> Tuned:
    """Build the kernels of the mode, each with its fastest tiling."""
    lse = inputs["x"].new_empty(point.m, dtype=torch.float32)
    candidates = TILINGS if "fwd" in point.mode else TILINGS[:1]
    losses = tune(partial(losses_call, inputs, lse), candidates)
    if point.mode == "fwd":
        return losses
    losses()
    gradient = tune(partial(gradient_call, inputs, lse), GRADIENTS)

    def both() -> tuple[torch.Tensor, Backward]:
        return losses(), lambda dy: (gradient(),)  # which reads inputs["dy"]

    chosen = {f"backward_{name}": value for name, value in gradient.chosen.items()}
    if point.mode == "fwd+bwd":
        chosen |= losses.chosen
    return Tuned(by_mode(point.mode, inputs, both, losses), chosen)


def losses_of(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return torch's losses (m,) of logits x (m, v)."""
    return F.cross_entropy(x, targets, ignore_index=IGNORED, reduction="none")


def cross_entropy_torch(wrap: Callable[..., Any]) -> Callable[[Inputs, Point, object], Call]:
    """Return the build of what *wrap* makes of torch's function."""

    def build(inputs: Inputs, point: Point, options: object) -> Call:
        function = wrap(losses_of)
        names = [name for name in inputs if name != "dy"]

        def losses(x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = function(x, inputs["targets"])
            return result

        watched = {name: inputs[name] for name in [*names, *(["dy"] if "dy" in inputs else [])]}
        call: Call = by_torch(point.mode, losses, watched, ["x"])
        return call

    return build


def reference(inputs: Inputs, point: Point) -> Any:
    """Compute losses and gradient in float64, for some rows at a time."""
    x, targets = inputs["x"], inputs["targets"]
    loss = x.new_empty(x.shape[0], dtype=torch.float64)
    dx = x.new_empty(x.shape if point.mode != "fwd" else (0, 0), dtype=torch.float64)
    rows = max(1, LARGEST_PIECE // x.shape[1])
    for piece in (slice(start, start + rows) for start in range(0, x.shape[0], rows)):
        value, target = x[piece].double(), targets[piece]
        counted = target != IGNORED
        place = target.clamp_min(0)[:, None]
        norm = torch.logsumexp(value, 1)
        loss[piece] = torch.where(counted, norm - value.gather(1, place)[:, 0], 0.0)
        if point.mode != "fwd":
            share = (value - norm[:, None]).exp_()
            share.scatter_add_(1, place, share.new_full(place.shape, -1.0))
            dy = torch.where(counted, inputs["dy"][piece].double(), 0.0)
            dx[piece] = share * dy[:, None]
    return {"fwd": loss, "bwd": dx, "fwd+bwd": (loss, dx)}[point.mode]


def draw_targets(point: Point, make: Make) -> torch.Tensor:
    """Draw targets below v; of `third`, those that leave a remainder of 1 by 3 are ignored."""
    targets = make((point.m,), "int64", high=point.v)
    # An operator on the meta tensors that count bytes would import torch's compiler.
    if point.get("ignored", "none") == "third" and not targets.is_meta:
        targets.masked_fill_(targets % 3 == 1, IGNORED)
    return targets


def make_inputs(point: Point, make: Make) -> Inputs:
    """Draw logits, targets and, for a backward, the gradient of the losses."""
    inputs = {"x": make((point.m, point.v), point.dtype).mul_(SPREAD)}
    inputs["targets"] = draw_targets(point, make)
    if point.mode != "fwd":
        inputs["dy"] = make((point.m,), point.dtype)
    return inputs


def cost(point: Point) -> Cost:
    """Return the cost: x, targets and dy are read once, losses and dx are written once."""
    size, each, back = point.m * point.v, itemsize(point.dtype), point.mode != "fwd"
    read = size * each + point.m * (itemsize("int64") + back * each)
    written = of_mode(point.mode, point.m, size) * each
    count = of_mode(point.mode, size, size)
    flops = (
        Flops(3 * count, "elementwise", point.dtype, "fp32"),
        Flops(count, "special", point.dtype, function="exp"),
    )
    return Cost(flops, (Bytes(read, written),))


def work_of(forward: tuple[int, int], backward: tuple[int, int]) -> Callable[[Point], Work]:
    """Return the work of the tensors (m, v) that each direction reads and writes."""

    def work(point: Point) -> Work:
        size, needed = point.m * point.v * itemsize(point.dtype), cost(point)
        (least,) = needed.bytes
        read = least.read + (of_mode(point.mode, forward[0], backward[0]) - 1) * size
        written = of_mode(point.mode, forward[1], backward[1]) * size
        losses = point.m * itemsize(point.dtype) * ("fwd" in point.mode)
        return Work(needed.flops, (Bytes(read, written + losses),))

    return work


CROSS_ENTROPY = Workload(
    name="cross_entropy",
    summary="cross-entropy of logits and its gradient",
    formula="m·v exponentials + 3·m·v FLOP each way; fwd m·v·s bytes, bwd 2·m·v·s bytes",
    axes=(
        Axis("m", 4096, "rows: tokens"),
        Axis("v", 128 * 1024, "columns: the vocabulary", main=True),
        IGNORED_TARGETS,
        MODE,
        Axis("dtype", "auto", "dtype of logits and losses", choices=("fp32", "bf16", "fp16")),
    ),
    inputs=make_inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation(
            "torch",
            cross_entropy_torch(lambda function: function),
            "torch, F.cross_entropy",
            work=work_of((1, 1), (2, 2)),
        ),
        Implementation(
            "compile", cross_entropy_torch(compiled), "torch.compile of torch", lacks_compiler
        ),
        Implementation(
            "triton",
            cross_entropy_triton,
            "Triton, rows read once, tuned",
            lacks_triton,
            work_of((1, 0), (1, 1)),
        ),
    ),
    narrow=lambda inputs, rows: {name: value[rows] for name, value in inputs.items()},
    terms=lambda point: point.v,
    # torch keeps the logarithms of the softmax in the dtype of x, of which a share is the power.
    roundings=lambda point: 4,
    prepared=lambda point: ("x", "targets") if point.mode == "bwd" else (),
)
