"""Workloads of a gang whose second rank misbehaves, for the tests of gangs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist

from gpuperf import Axis, Bytes, Cost, Implementation, Point, Workload

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], torch.Tensor]
BAD = 1  # the rank that misbehaves
LATER = 3 if torch.cuda.is_available() else 10  # a call at which it does; graphs need few calls


def inputs(point: Point, make: Callable[..., torch.Tensor]) -> Inputs:
    return {"x": make((point.n,), "fp32", high=None)}


def add(inputs: Inputs, before: Callable[[], object], after: float = 0.0) -> Call:
    x = inputs["x"]
    y = torch.empty_like(x)

    def call() -> torch.Tensor:
        if dist.get_rank() == BAD:
            before()
        y.copy_(x)
        dist.all_reduce(y)
        return y.add_(after) if dist.get_rank() == BAD else y

    return call


def later(event: Callable[[], object]) -> Callable[[], object]:
    """*event* at a later call, on a CPU after some samples have been taken."""
    count = [0]

    def before() -> None:
        count[0] += 1
        if count[0] == LATER:
            event()

    return before


def fall_silent() -> None:
    time.sleep(1000)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def complain() -> None:
    raise RuntimeError("no more")


def nothing() -> None:
    pass


def only_bad_ranks_lack(point: Point, device: object) -> str | None:
    return "this rank has no such kernel" if dist.get_rank() == BAD else None


def implementation(name: str, before: Callable[[], object], after: float = 0.0) -> Implementation:
    return Implementation(name, lambda i, point, options: add(i, later(before), after), name)


RANKED = Workload(
    name="ranked",
    summary="sum over the ranks",
    formula="n FLOP",
    axes=(Axis("n", 8, "elements", main=True), Axis("dtype", "fp32", "d", choices=("fp32",))),
    inputs=inputs,
    reference=lambda inputs, point: inputs["x"].double() * point.world,
    cost=lambda point: Cost(
        bytes=(Bytes(4 * point.n, 4 * point.n), Bytes(8, 8, "link")), collective=4 * point.n
    ),
    implementations=(
        implementation("good", nothing),
        implementation("dies", die),
        implementation("hangs", fall_silent),
        implementation("stops", stop),
        implementation("raises", complain),
        implementation("wrong", nothing, 1.0),
        Implementation("lacks", lambda i, p, o: add(i, nothing), "lacks", only_bad_ranks_lack),
    ),
    terms=lambda point: 2,
    world=True,
)
