"""Read with a stride between lanes: a warp's load fetches each 32-byte sector that it touches.

L1 asks L2 for the distinct sectors of 32 bytes that a warp touches (CUDA C++ Best Practices Guide,
"Coalesced Access to Global Memory"), in whatever order its lanes are. The loads bypass L1, so that
no other warp can hit the sector. Each thread stores the element that it reads: 4 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from gpuperf.lab_experiments._cuda import cuda_call, lacks_cuda

from gpuperf import (
    Axis,
    Bytes,
    Control,
    Cost,
    Expected,
    Experiment,
    Implementation,
    Numbers,
    Point,
    Workload,
    exactly,
)

THREADS, WARP, SECTOR, FETCH, SIZE = 256, 32, 32, 64, 4

CUDA = """
extern "C" __global__ void read_strided(const float* x, float* y, unsigned stride, unsigned offset,
                                        unsigned shuffled) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = i % 32;
    const unsigned turned = shuffled ? (lane * 5 + 3) % 32 : lane;
    y[i] = __ldcg(x + (size_t)(i - lane + turned) * stride + offset);
}
"""


def read_cuda(
    inputs: Mapping[str, torch.Tensor], point: Point, options: object
) -> Callable[[], torch.Tensor]:
    """Build the loads, one in each thread."""
    x = inputs["x"]
    y = torch.empty(point.n, device=x.device)
    arguments = (x, y, point.stride, point.offset, int(point.order == "shuffled"))
    return cuda_call(CUDA, "read_strided", y, point.n // THREADS, THREADS, *arguments)


def reference(inputs: Mapping[str, torch.Tensor], point: Point) -> torch.Tensor:
    """Return the elements that each thread reads."""
    i = torch.arange(point.n, device=inputs["x"].device)
    lane = i % WARP
    turned = (lane * 5 + 3) % WARP if point.order == "shuffled" else lane
    return inputs["x"].double()[(i - lane + turned) * point.stride + point.offset]


def sectors(at: Point) -> int:
    """Return the number of sectors that the lanes of a warp touch."""
    return len({SIZE * (lane * at.stride + at.offset) // SECTOR for lane in range(WARP)})


def expect(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes between L2 and the SMs for each element: sectors read, and 4 bytes."""
    moved = sectors(at) * SECTOR / WARP + SIZE
    return exactly(moved, "byte", f"{sectors(at)} sectors for 32 loads, and {SIZE} B written")


def expect_dram(at: Point, numbers: Numbers) -> Expected:
    """Predict the bytes read from DRAM for each element, if DRAM is read 64 bytes at a time."""
    read = min(SIZE * at.stride, FETCH)
    return exactly(read, "byte", f"L2 fetches {FETCH} B at a time from DRAM", within=0.02)


STRIDED = Workload(
    name="strided",
    summary="loads with a stride between the lanes of a warp",
    formula="4·n bytes used",
    axes=(
        Axis("stride", 1, "elements between two lanes", main=True),
        Axis("offset", 0, "elements before the first lane", minimum=0),
        Axis("order", "straight", "order of a warp's lanes", choices=("straight", "shuffled")),
        Axis("n", 2**23, "loads"),
        Axis("dtype", "fp32", "dtype of the elements", choices=("fp32",)),
    ),
    inputs=lambda point, make: {"x": make((point.n * point.stride + point.offset,), point.dtype)},
    reference=reference,
    cost=lambda point: Cost(bytes=(Bytes(SIZE * point.n, SIZE * point.n),)),
    implementations=(Implementation("cuda", read_cuda, "CUDA C, past L1", lacks_cuda),),
    terms=lambda point: 1,
)
STRIDES = (1, 2, 3, 4, 8, 16, 32)
SHUFFLED = Control("shuffled", {"stride": (1, 2), "order": "shuffled"}, "the same sectors")

COALESCING = Experiment(
    name="coalescing",
    question="How many bytes does a warp's load move, by stride and offset?",
    workload=STRIDED,
    axes={"stride": STRIDES, "offset": (0, 1, 8)},
    x="stride",
    y="l2_bytes",
    series="offset",
    steps=lambda at: at.n,
    expect=expect,
    controls=(SHUFFLED,),
    needs=("cuda", "counters"),
)
GRANULE = Experiment(
    name="granule",
    question="Does DRAM deliver 64 bytes at a time, though a sector has 32?",
    workload=STRIDED,
    axes={"stride": STRIDES},
    x="stride",
    y="dram_read_bytes",
    steps=lambda at: at.n,
    expect=expect_dram,
    controls=(SHUFFLED,),
    needs=("cuda", "counters"),
)
