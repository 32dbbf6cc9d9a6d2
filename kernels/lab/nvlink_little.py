"""Measure the bandwidth of the link between two GPUs against the bytes in flight over it.

A kernel reads another GPU's memory, whose L2 holds all that is read. With x bytes in flight and a
latency L, x / L bytes arrive in a second, until the link carries no more: Little's law as in
`little`, with a latency that is longer and a bandwidth that is lower than those of DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpuperf.kernels.p2p import ENDS, inaccessible
from gpuperf.lab_experiments._cuda import cuda_call
from gpuperf.lab_experiments._loads import CUDA as LOADS
from gpuperf.lab_experiments._loads import SLOTS, reference, shape
from gpuperf.lab_experiments._loads import supports as loadable
from gpuperf.lab_experiments.little import in_flight, moved

from gpuperf import (
    Axis,
    Bytes,
    Control,
    Cost,
    Expected,
    Experiment,
    Implementation,
    Law,
    Numbers,
    Point,
    Workload,
    at_most,
)
from gpuperf.nvrtc import U64
from gpuperf.theory.little import attained, queued

LATENCY_S = 0.7e-6  # until `peer_latency` has measured it
# The protocol of the link takes a part of its sheet's figure: copies attain 0.82 to 0.88 of it.
SHARE = 0.75


class PeerLoads:
    """A call that streams x from the memory of the GPU `peer`, which has a copy of it."""

    def __init__(self, inputs: Mapping[str, torch.Tensor], point: Point, options: object) -> None:
        x = self._x = inputs["x"]
        self._there = torch.empty_like(x, device=torch.device("cuda", int(point.peer)))
        x.new_empty(1).copy_(self._there[:1])  # torch enables access
        self._version = -1
        block, grid, rounds = shape(point, x)
        y, mask = torch.empty(grid * block, device=x.device), 4 * point.n // point.size - 1
        counts = (rounds, U64), (point.unroll, U64)
        name = f"independent_{point.size}_{point.unroll}"
        self._call = cuda_call(LOADS, name, y, grid, block, self._there, y, mask, *counts, 0)

    def __call__(self) -> torch.Tensor:
        """Queue the stream; the peer's copy is renewed when x changed."""
        if self._x._version != self._version:
            self._there.copy_(self._x)
            self._version = self._x._version
        return self._call()


def supports(point: Point, device: Any) -> str | None:
    """Return why the point cannot run, or None."""
    return loadable(point, device) or inaccessible(point, device)


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict min(x / L, B) as a bound, as `little` does for DRAM; B is one direction's sheet."""
    x, bandwidth = in_flight(at, numbers), numbers["link_bandwidth"] / 2
    seconds, source = numbers.get("latency_peer_l2", LATENCY_S), numbers.source("latency_peer_l2")
    because = f"{x / 1e3:.3g} kB in flight, {seconds * 1e9:.0f} ns ({source}), {bandwidth:.3g} B/s"
    most = attained(x, seconds, bandwidth)
    return at_most(most, "byte/s", because, SHARE * queued(x, seconds, bandwidth) / most)


PEER_LOADS = Workload(
    name="peer_loads",
    summary="a stream from another GPU's memory",
    formula="128·threads·unroll·size·rounds bytes over the link",
    axes=(
        Axis("threads", 2048, "threads of an SM", main=True, minimum=32),
        Axis("unroll", 1, "loads of a thread in flight"),
        Axis("size", 4, "bytes of a load"),
        Axis("rounds", 128, "times that all loads of a thread arrive, with 128 SMs"),
        Axis("n", 2**22, "elements of x, which stay in the peer's L2"),
        Axis("dtype", "fp32", "dtype of x and y", choices=("fp32",)),
        *ENDS,
    ),
    inputs=lambda point, make: {"x": make((point.n,), point.dtype)},
    reference=reference,
    cost=lambda point: Cost(bytes=(Bytes(0, 4 * SLOTS), Bytes(moved(point), 0, "link"))),
    implementations=(Implementation("independent", PeerLoads, "all loads in flight", supports),),
    prepared=lambda point: ("x",),
    terms=lambda point: point.rounds * point.unroll * point.size // 4,
)

NVLINK_LITTLE = Experiment(
    name="nvlink_little",
    question="How many bytes must be in flight to saturate the link between two GPUs?",
    workload=PEER_LOADS,
    axes={"threads": (32, 64, 128, 256, 512, 1024, 2048), "size": (4, 16)},
    x="bytes in flight",
    along=in_flight,
    y="bytes_per_s",
    steps=moved,
    expect=expect,
    controls=(
        Control("by threads", {"threads": 512}, "2 KiB in flight on an SM, as of the next two"),
        Control("by unrolling", {"threads": 128, "unroll": 4}, "the same bytes in fewer threads"),
        Control("by width", {"threads": 128, "size": 16}, "the same bytes in wider loads"),
    ),
    law=Law("saturation", band=0.25),
    needs=("cuda", "peer"),
    after=("peer_latency",),
)
