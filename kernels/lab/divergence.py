"""Let the lanes of a warp take different paths: the warp runs them one after the other.

Each thread runs `repeats` links of a chain of multiply-adds in the loop of its path. With p paths
in a warp, the warp runs p loops of `repeats` links, each with a part of its lanes (CUDA C++
Programming Guide, "SIMT Architecture"), so that it takes p times as long. Paths that whole warps
choose cost nothing. Each path has constants of its own and a trip count known at run time only, so
that the compiler can neither merge the paths nor turn them into predicates.

The axis `by` says who chooses: `lanes` (the path is lane·paths/32, so that each warp has all paths)
or `warps` (the path is the warp's number modulo paths, so that each warp has one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from gpuperf.lab_experiments._cuda import cuda_call, lacks_cuda, sm_count

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
    about,
)

THREADS, WARP, MOST = 1024, 32, 32  # 8 warps for each scheduler: the issue slots are full
SHARE = 1 / 64  # of a path's number in its constant

CUDA = """
#define PATH(p) case p: for (unsigned r = 0; r < repeats; ++r) v = fmaf(v, 0.5f, 1 + (p)*s); break;
#define FOUR(p) PATH(p) PATH(p + 1) PATH(p + 2) PATH(p + 3)
extern "C" __global__ void diverge(const float* x, float* y, unsigned paths, unsigned repeats,
                                   unsigned by_warp, float s) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float v = x[threadIdx.x];
    switch (by_warp ? warp % paths : lane * paths / 32) {
        FOUR(0) FOUR(4) FOUR(8) FOUR(12) FOUR(16) FOUR(20) FOUR(24) FOUR(28)
    }
    if (blockIdx.x == 0 || v < -1e30f) y[threadIdx.x] = v;  // every block must compute v
}
"""


def diverge_cuda(
    inputs: Mapping[str, torch.Tensor], point: Point, options: object
) -> Callable[[], torch.Tensor]:
    """Build the loops: a block of 1,024 threads on each SM."""
    x = inputs["x"]
    y, by_warp = torch.empty_like(x), int(point.by == "warps")
    arguments = (x, y, point.paths, point.repeats, by_warp, SHARE)
    return cuda_call(CUDA, "diverge", y, sm_count(x), THREADS, *arguments)


def supports(point: Point, device: Any) -> str | None:
    """Return why the point cannot run, or None."""
    if point.paths > MOST or MOST % point.paths:
        return f"the paths of a warp must divide {MOST}"
    return lacks_cuda(point, device)


def reference(inputs: Mapping[str, torch.Tensor], point: Point) -> torch.Tensor:
    """Compute the chain in closed form: c + (x − c)/2^repeats, with c = 2·(1 + path/64)."""
    x = inputs["x"].double()
    thread = torch.arange(THREADS, device=x.device)
    lanes = thread % WARP * point.paths // WARP
    path = lanes if point.by == "lanes" else thread // WARP % point.paths
    limit = 2 * (1 + path * SHARE)
    return limit + (x - limit) * 0.5**point.repeats


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the time over that of one path."""
    paths = at.paths if at.by == "lanes" else 1
    return about(paths, "ratio", f"paths of a warp, one after the other: {paths}")


PATHS = Workload(
    name="paths",
    summary="loops of which each thread runs one",
    formula="2·repeats·1024 FLOP on each SM",
    axes=(
        Axis("paths", 1, "different loops", main=True),
        Axis("repeats", 16384, "links of each loop"),
        Axis("by", "lanes", "who chooses a path", choices=("lanes", "warps")),
        Axis("dtype", "fp32", "dtype of the chains", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((THREADS,), point.dtype)},
    reference=reference,
    cost=lambda point: Cost(bytes=(Bytes(4 * THREADS, 4 * THREADS),)),
    implementations=(Implementation("cuda", diverge_cuda, "CUDA C, 32 warps an SM", supports),),
    terms=lambda point: point.repeats,
)

DIVERGENCE = Experiment(
    name="divergence",
    question="What do different paths of the lanes of a warp cost?",
    workload=PATHS,
    axes={"paths": (1, 2, 4, 8, 16, 32), "by": ("lanes",)},
    x="paths",
    y="time_ratio",
    baseline=lambda at: {"paths": 1, "by": "lanes"},
    expect=expect,
    controls=(Control("by warp", {"paths": (2, 8, 32), "by": "warps"}, "each warp has one path"),),
    law=Law("proportional", band=0.03),
)
