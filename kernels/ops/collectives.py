"""Exchange arrays between the n ranks of a gang, one rank a GPU (or a process of a CPU).

S are the bytes of the whole array: of an all-gather's result, of a reduce-scatter's input, of one
rank's whole buffer in an all-to-all. The rates are those of nccl-tests: algbw = S / time, and busbw
= algbw · factor, which is what one direction of a rank's link carries in a ring, whatever n is.

- `all_reduce`: each rank gets the sum of all ranks' arrays; factor 2·(n − 1)/n.
- `reduce_scatter`: rank r gets part r of the sum; factor (n − 1)/n.
- `all_gather`: each rank gets the parts of all ranks; factor (n − 1)/n.
- `all_to_all`: rank r gets part r of each rank's array; factor (n − 1)/n.
- `broadcast`: each rank gets the root's array; factor 1.
- `reduce`: the root gets the sum; factor 1.
- `sendrecv`: rank r sends to rank r + 1, and receives from rank r − 1; factor 1.

Implementations:

- `gloo`: torch.distributed on CPUs. Its times say nothing of a network.
- `nccl`: torch.distributed on GPUs, launched by the host.
- `nccl_graph`: the same call, replayed from a CUDA graph.
- `rs_ag`: a reduce-scatter and an all-gather, by either library (`all_reduce` alone).
- `one_shot`, `two_shot`: kernels over torch's symmetric memory (`all_reduce` alone). In one shot
  each rank reads all arrays; in two each reduces a part, and reads the other parts.

torch reduces and broadcasts in place; `--in-place no` copies the array first, as its users do.

The arrays hold small whole numbers, whose sums are exact (`_ranks.py`). Every rank compares its
whole result with a formula, not with a gather.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from gpuperf.kernels._ranks import (
    all_reduced,
    elements,
    exchanged,
    from_root,
    gathered,
    gathered_inputs,
    inputs_of,
    part,
    received,
    reduced,
    scattered,
)
from gpuperf.kernels._symmetric import lacks_symmetric, one_shot, two_shot

from gpuperf import Axis, Bytes, Cost, Implementation, Point, Workload
from gpuperf.units import itemsize

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]
Build = Callable[[Inputs, Point, object], Call]

OPERATIONS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "avg": dist.ReduceOp.AVG,
}


# Calls of torch.distributed; deprecated names are used where torch has no others yet.


def copied(x: torch.Tensor, point: Point, run: Callable[[torch.Tensor], object]) -> Call:
    """Return a call of *run* on *x* in place, or on a copy of it."""
    y = x if point.get("in_place", "yes") == "yes" else torch.empty_like(x)

    def call() -> torch.Tensor:
        if y is not x:
            y.copy_(x)
        run(y)
        return y

    return call


def all_reduce(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the all-reduce by torch."""
    operation = OPERATIONS[point.operation]
    return copied(inputs["x"], point, lambda y: dist.all_reduce(y, operation))


def broadcast(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the broadcast, which is in place on every rank."""
    return copied(inputs["x"], point, lambda y: dist.broadcast(y, int(point.root)))


def reduce(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the reduction, in place on the root; torch leaves the others' arrays undefined."""
    x, root, operation = inputs["x"], int(point.root), OPERATIONS[point.operation]
    result = x if dist.get_rank() == root else x[:0]

    def call() -> torch.Tensor:
        dist.reduce(x, root, operation)
        return result

    return call


def all_gather(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the all-gather; in place, the rank's part is in the array of the result."""
    x, count, rank = inputs["x"], part(point), dist.get_rank()
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    if point.in_place == "yes":
        y, x = x, x[rank * count : (rank + 1) * count]
    else:
        y = x.new_empty(elements(point))

    def call() -> torch.Tensor:
        gather(y, x)
        return y

    return call


def reduce_scatter(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the reduce-scatter; in place, the result is a part of the rank's array."""
    x, count, rank = inputs["x"], part(point), dist.get_rank()
    operation = OPERATIONS[point.operation]
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    y = x[rank * count : (rank + 1) * count] if point.in_place == "yes" else x.new_empty(count)

    def call() -> torch.Tensor:
        scatter(y, x, operation)
        return y

    return call


def rs_ag(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the all-reduce as a reduce-scatter and an all-gather, in place."""
    placed = Point({**point, "in_place": "yes"})
    x = inputs["x"]
    scatter, gather = (build(inputs, placed, options) for build in (reduce_scatter, all_gather))

    def call() -> torch.Tensor:
        scatter()
        gather()
        return x

    return call


def all_to_all(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the all-to-all of equal parts by torch."""
    x = inputs["x"]
    y = torch.empty_like(x)

    def call() -> torch.Tensor:
        dist.all_to_all_single(y, x)
        return y

    return call


def sendrecv(inputs: Inputs, point: Point, options: object) -> Call:
    """Build the shift around the ring; both directions of a link are busy at n = 2."""
    x, rank, world = inputs["x"], dist.get_rank(), int(point.world)
    y = torch.empty_like(x)

    def call() -> torch.Tensor:
        send = dist.P2POp(dist.isend, x, (rank + 1) % world)
        receive = dist.P2POp(dist.irecv, y, (rank - 1) % world)
        for work in dist.batch_isend_irecv([send, receive]):
            work.wait()
        return y

    return call


class Replay:
    """A call that replays its CUDA graph; `plain` is the call that was captured."""

    def __init__(self, plain: Call) -> None:
        self.plain = plain
        plain()  # connects the ranks, which a capture cannot
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        # NCCL's watchdog asks for events in another thread, which a global capture forbids.
        with torch.cuda.graph(
            self.graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"
        ):
            self.output = plain()

    def __call__(self) -> torch.Tensor:
        """Replay the graph, and return its result."""
        self.graph.replay()
        return self.output


def captured(build: Build) -> Build:
    """Return a build of calls that replay the graph of a call of *build*."""
    return lambda inputs, point, options: Replay(build(inputs, point, options))


# Where an implementation runs, and what a call costs.


def unsuited(point: Point, divided: bool = False) -> str | None:
    """Return why no implementation takes *point*: its bytes, its root, or, where the array is
    *divided* among the ranks, its parts."""
    size, world = itemsize(point.dtype), int(point.world)
    if point.bytes % size:
        return f"{point.bytes} bytes are no whole number of {point.dtype} elements of {size} bytes"
    if divided and elements(point) % world:
        return f"{elements(point)} elements are not divisible by {world} ranks"
    if int(point.get("root", 0)) >= world:
        return f"there is no rank {point.root} among {world}: --root is from 0 to {world - 1}"
    return None


def on(kind: str, divided: bool = False, lacks: str = "") -> Callable[[Point, Any], str | None]:
    """Return the `supports` of an implementation on devices of *kind*; *divided* says that the
    array is divided among the ranks, *lacks* names an operation that the library does not have."""

    def supports(point: Point, device: Any) -> str | None:
        if device.kind != kind:
            return "it runs on CPUs" if kind == "cpu" else "it runs on NVIDIA GPUs"
        if lacks and point.get("operation") == lacks:
            return f"gloo has no operation {lacks}"
        return unsuited(point, divided)

    return supports


def halves(point: Point, device: Any) -> str | None:
    """Return why `rs_ag` does not take *point*, or None."""
    if point.in_place == "no":
        return "its result is for --in-place yes"
    kind = "cuda" if device.kind == "cuda" else "cpu"
    return on(kind, divided=True, lacks="avg" if kind == "cpu" else "")(point, device)


def symmetric(in_place: str) -> Callable[[Point, Any], str | None]:
    """Return the `supports` of a kernel over symmetric memory, which is *in_place* or not."""

    def supports(point: Point, device: Any) -> str | None:
        if reason := on("cuda")(point, device):
            return reason
        other = point.in_place != in_place
        return f"its result is for --in-place {in_place}" if other else lacks_symmetric(point)

    return supports


def cost_of(numerator: int, divided: bool) -> Callable[[Point], Cost]:
    """Return the `cost` of a collective whose factor is *numerator*, or *numerator* · (n − 1)/n
    where the array is *divided* among the ranks. The whole array is read and written in DRAM by
    each rank, as a bound from below for the result alone."""

    def cost(point: Point) -> Cost:
        size, world = elements(point) * itemsize(point.dtype), int(point.world)
        link = -(-numerator * (world - 1) * size // world) if divided else size
        return Cost(bytes=(Bytes(size, size), Bytes(link, link, "link")), collective=size)

    return cost


def by_torch(build: Build, divided: bool = False) -> tuple[Implementation, ...]:
    """Return the implementations of *build* by gloo, and by NCCL without and with a graph."""
    on_cpu, on_gpu = on("cpu", divided, "avg"), on("cuda", divided)
    return (
        Implementation("gloo", build, "gloo, processes of a CPU", on_cpu),
        Implementation("nccl", build, "NCCL, launched by the host", on_gpu),
        Implementation("nccl_graph", captured(build), "NCCL in a CUDA graph", on_gpu),
    )


BYTES = Axis("bytes", 2**20, "bytes of the whole array", main=True)
DTYPE = Axis(
    "dtype", "auto", "dtype of the elements", choices=("fp32", "bf16", "fp16", "fp64", "int8")
)
OPERATION = Axis("operation", "sum", "reduction", choices=("sum", "max", "min", "avg"))
IN_PLACE = Axis("in_place", "yes", "result in the memory of the input", choices=("yes", "no"))
ROOT = Axis("root", 0, "rank that sends to all, or receives from all", minimum=0)


def changed(point: Point) -> tuple[str, ...]:
    """Return the input of a call in place."""
    return ("x",) if point.in_place == "yes" else ()


def exact(point: Point) -> int:
    """Return no addends: sums of small whole numbers are not rounded, but their mean may be."""
    return int(point.world) if point.get("operation") == "avg" else 0


ALL_REDUCE = Workload(
    name="all_reduce",
    summary="sum of all ranks' arrays, on all ranks",
    formula="2·(n − 1)/n·S bytes over each rank's link",
    axes=(BYTES, DTYPE, OPERATION, IN_PLACE),
    inputs=inputs_of(elements),
    reference=all_reduced,
    cost=cost_of(2, divided=True),
    implementations=(
        *by_torch(all_reduce),
        Implementation("rs_ag", rs_ag, "reduce-scatter and all-gather", halves),
        Implementation("one_shot", one_shot, "torch symmetric memory, one shot", symmetric("no")),
        Implementation("two_shot", two_shot, "torch symmetric memory, two shots", symmetric("yes")),
    ),
    terms=exact,
    mutates_at=changed,
    world=True,
)

ALL_GATHER = Workload(
    name="all_gather",
    summary="parts of all ranks, on all ranks",
    formula="(n − 1)/n·S bytes over each rank's link",
    axes=(BYTES, DTYPE, IN_PLACE),
    inputs=gathered_inputs,
    reference=gathered,
    cost=cost_of(1, divided=True),
    implementations=by_torch(all_gather, divided=True),
    terms=exact,
    mutates_at=changed,
    world=True,
)

REDUCE_SCATTER = Workload(
    name="reduce_scatter",
    summary="sum of all ranks' arrays, in parts",
    formula="(n − 1)/n·S bytes over each rank's link",
    axes=(BYTES, DTYPE, OPERATION, IN_PLACE),
    inputs=inputs_of(elements),
    reference=scattered,
    cost=cost_of(1, divided=True),
    implementations=by_torch(reduce_scatter, divided=True),
    terms=exact,
    mutates_at=changed,
    world=True,
)

ALL_TO_ALL = Workload(
    name="all_to_all",
    summary="a part of each array to each rank",
    formula="(n − 1)/n·S bytes over each rank's link",
    axes=(BYTES, DTYPE),
    inputs=inputs_of(elements),
    reference=exchanged,
    cost=cost_of(1, divided=True),
    implementations=by_torch(all_to_all, divided=True),
    terms=exact,
    world=True,
)

BROADCAST = Workload(
    name="broadcast",
    summary="the root's array, on all ranks",
    formula="S bytes over each rank's link",
    axes=(BYTES, DTYPE, ROOT),
    inputs=inputs_of(elements),
    reference=from_root,
    cost=cost_of(1, divided=False),
    implementations=by_torch(broadcast),
    terms=exact,
    mutates=("x",),
    world=True,
)

REDUCE = Workload(
    name="reduce",
    summary="sum of all ranks' arrays, on the root",
    formula="S bytes over each rank's link",
    axes=(BYTES, DTYPE, OPERATION, ROOT),
    inputs=inputs_of(elements),
    reference=reduced,
    cost=cost_of(1, divided=False),
    implementations=by_torch(reduce),
    terms=exact,
    mutates=("x",),
    world=True,
)

SENDRECV = Workload(
    name="sendrecv",
    summary="array to the next rank of a ring",
    formula="S bytes over each rank's link",
    axes=(BYTES, DTYPE),
    inputs=inputs_of(elements),
    reference=received,
    cost=cost_of(1, divided=False),
    implementations=by_torch(sendrecv),
    terms=exact,
    world=True,
)
