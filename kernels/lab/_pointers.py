"""The workload of a chain of pointers, which several experiments measure; see `_chase.py`.

- `ca`: loads that L1 keeps.
- `cg`: loads that bypass L1.
- `shared`: nodes in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.lab_experiments._chase import LAPPED_L2_SIZES, Chase
from gpuperf.lab_experiments._cuda import lacks_cuda

from gpuperf import Axis, Bytes, Cost, Implementation, Numbers, Point, Workload
from gpuperf.model.contract import Cache
from gpuperf.theory.latency import published

UNROLL, HELD = 16, 48 * 1024  # hops of an iteration; bytes of static shared memory
SECTOR = 32

Inputs = Mapping[str, torch.Tensor]


def inputs(point: Point, make: Callable[..., torch.Tensor]) -> Inputs:
    """Draw the order in which the nodes are visited: any order is one cycle through all nodes."""
    drawn = make((point.footprint // point.step,), "int64", high=2**62)
    if point.order == "sequential":
        return {"order": torch.arange(len(drawn), device=drawn.device)}
    return {"order": drawn.argsort()}


def reference(inputs: Inputs, point: Point) -> torch.Tensor:
    """Return the node that the last hop reaches; one hop more or less ends elsewhere."""
    order = inputs["order"]
    return order[point.hops % len(order)].reshape(1)


def build(name: str) -> Callable[..., Chase]:
    """Return the function that builds the chase by the kernel *name*."""
    return lambda inputs, point, options: Chase(inputs["order"], point, name)


def supports(point: Point, device: Any) -> str | None:
    """Return why the point cannot run, or None."""
    if point.step % 8 or point.footprint % point.step or point.footprint < 2 * point.step:
        return "the step must be a multiple of 8 that divides the footprint twice or more"
    return (
        f"hops must be a multiple of {UNROLL}" if point.hops % UNROLL else lacks_cuda(point, device)
    )


def supports_shared(point: Point, device: Any) -> str | None:
    """Return why the nodes cannot be in shared memory, or None."""
    return supports(point, device) if point.footprint <= HELD else f"takes at most {HELD} bytes"


def cache(at: Point, numbers: Numbers) -> Cache:
    """Return the state of the L2: warm as far as nodes may fit it, else without any of them."""
    return "hot" if at.footprint <= LAPPED_L2_SIZES * numbers["l2"] else "cold"


def level(numbers: Numbers, name: str) -> float:
    """Return the cycles that `latency` measured on this device, or the published ones."""
    return numbers.get(f"latency_{name}", float(getattr(published(numbers.figures), name)))


def cost(point: Point) -> Cost:
    """Return the cost: a sector for each node that is visited."""
    visited = min(point.hops, point.footprint // point.step)
    return Cost(bytes=(Bytes(SECTOR * visited, 8),))


CHASE = Workload(
    name="chase",
    summary="a chain of dependent loads, one at a time",
    formula="hops loads, each from the address that the last one returned",
    axes=(
        Axis("footprint", 2**12, "bytes from the first node to the end of the last", main=True),
        Axis("step", 128, "bytes from a node to the next in memory"),
        Axis("order", "random", "order of the visits", choices=("random", "sequential")),
        # 16,384 hops take 240 µs from shared memory, and 6 ms from DRAM.
        Axis("hops", 2**14, "loads of a call"),
        Axis("dtype", "fp64", "8 bytes, the size of an address", choices=("fp64",)),
    ),
    inputs=inputs,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("ca", build("chase_ca"), "loads that L1 keeps", supports),
        Implementation("cg", build("chase_cg"), "loads that bypass L1", supports),
        Implementation("shared", build("chase_shared"), "shared memory", supports_shared),
    ),
    prepared=lambda point: ("order",),
    result=lambda point: "int64",
    terms=lambda point: 1,
    standard=("ca",),
)
