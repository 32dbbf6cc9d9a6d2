"""Copy a vector between two GPUs over their link: n·4 bytes, by the GPU `gpu`, from or to `peer`.

- `p2p`, by `way`: `write` to the peer's memory, `read` from it, or `both` at once on two streams.
- `p2p_latency`: one lane follows a chain of pointers in the peer's memory. The hops of 2 MiB of
  nodes are answered by the peer's L2, those of 256 MiB by its DRAM: a call goes on where the last
  one ended, so that all nodes are visited before one is again.

Implementations:

- `copy_engine`: a copy of the driver, which takes no SM.
- `sm`: a CUDA C kernel that loads and stores the other GPU's memory.

A GPU that cannot access the peer's memory copies through the host by the copy engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from gpuperf import Axis, Bytes, Cost, Implementation, Point, Workload
from gpuperf.nvrtc import POINTER, U32, U64, Kernel, copy_async, kernel_in, kernels_of

Inputs = Mapping[str, torch.Tensor]
Call = Callable[[], Any]
# Queue a copy of the vector *source* to *target* on the current stream.
Queue = Callable[[torch.Tensor, torch.Tensor, int], None]

SIZE = 4  # bytes of an element
THREADS, BLOCKS_PER_SM = 512, 4  # 2048 threads fill an SM; in both ways each has half of them
STEP, HOPS, UNROLL = 128, 4096, 16  # bytes between two nodes, and hops of a call

CHASE = """
typedef unsigned long long u64;
__device__ void follow(u64& at) {
    _Pragma("unroll") for (int k = 0; k < 16; ++k)
        asm volatile("ld.relaxed.sys.global.u64 %0, [%0];" : "+l"(at) :: "memory");
}
extern "C" __global__ void chase(
    u64 base, const u64* order, u64* out, u64* place, unsigned hops) {
    u64 at = base + order[0] * 128;
    follow(at);
    out[0] = (at - base) / 128;
    if (place[0]) at = place[0];
    for (unsigned h = 16; h < hops; h += 16) follow(at);
    place[0] = at;
}
"""


def arch(x: torch.Tensor) -> str:
    """Return the architecture of the GPU of *x*, such as `sm_90`."""
    major, minor = torch.cuda.get_device_capability(x.device)
    return f"sm_{major}{minor}"


def stream_of(x: torch.Tensor) -> int:
    """Return the current stream of the GPU that runs the copies."""
    return int(torch.cuda.current_stream(x.device).cuda_stream)


def by_copy_engine(target: torch.Tensor, source: torch.Tensor, ways: int) -> None:
    """Queue the copy by the copy engine of the current device."""
    stream = int(torch.cuda.current_stream().cuda_stream)
    copy_async(target.data_ptr(), source.data_ptr(), source.numel() * SIZE, stream)


@cache
def _copier(device: int) -> tuple[Kernel, int]:
    """Return the kernel that copies, and the number of SMs, of the current *device*."""
    kernels = kernels_of("stream.cu", arch(torch.empty(0, device=device)), ("copy_vector",))
    return kernels["copy_vector"], torch.cuda.get_device_properties(device).multi_processor_count


def by_sm(target: torch.Tensor, source: torch.Tensor, ways: int) -> None:
    """Queue the copy by a kernel of the current device, which shares its SMs among *ways*."""
    kernel, sms = _copier(torch.cuda.current_device())
    kernel.launch(
        int(torch.cuda.current_stream().cuda_stream),
        BLOCKS_PER_SM // ways * sms,
        THREADS,
        (source.data_ptr(), target.data_ptr(), source.numel()),
        (POINTER, POINTER, U64),
    )


class Exchange:
    """A call that copies x to the peer, z from it, or both; the peer's memory has a copy of z."""

    def __init__(self, inputs: Inputs, point: Point, queue: Queue) -> None:
        x = self._x = next(iter(inputs.values()))
        self._z = inputs.get("z", x)
        self._way, self._queue, self._version = point.way, queue, -1
        self._here = torch.empty_like(x)
        peer = torch.device("cuda", int(point.peer))
        self._there, self._theirs = (torch.empty_like(x, device=peer) for _ in range(2))
        self._theirs.copy_(x)  # with the copy back, torch enables access in both directions
        self._here.copy_(self._theirs)
        self._side = torch.cuda.Stream(x.device)

    def __call__(self) -> Any:
        """Queue the copies on the current stream, and on another one that it waits for."""
        if self._z._version != self._version:
            self._theirs.copy_(self._z)
            self._version = self._z._version
        if self._way == "write":
            self._queue(self._there, self._x, 1)
            return self._there
        if self._way == "read":
            self._queue(self._here, self._theirs, 1)
            return self._here
        main = torch.cuda.current_stream(self._x.device)
        self._side.wait_stream(main)
        with torch.cuda.stream(self._side):
            self._queue(self._there, self._x, 2)
        self._queue(self._here, self._theirs, 2)
        main.wait_stream(self._side)
        return self._here, self._there


def build(queue: Queue) -> Callable[[Inputs, Point, object], Call]:
    """Return the function that builds the exchange by *queue*."""
    return lambda inputs, point, options: Exchange(inputs, point, queue)


def unlinked(point: Point, device: Any) -> str | None:
    """Return why *device* has no link to the peer of *point*, or None."""
    if device.kind != "cuda":
        return "a CPU has no link to another device"
    count = torch.cuda.device_count()
    if point.peer >= count:
        return f"there is no GPU {point.peer}: torch can use {count} here"
    if point.gpu != device.index or point.gpu == point.peer:
        return f"GPU {device.index} copies from or to another one, --gpu {device.index} --peer N"
    if point.get("bytes", SIZE) % SIZE:
        return f"{point.bytes} bytes are not a multiple of {SIZE}"
    return None


def inaccessible(point: Point, device: Any) -> str | None:
    """Return why a kernel of *device* cannot access the peer's memory, or None."""
    if reason := unlinked(point, device):
        return reason
    if torch.cuda.can_device_access_peer(int(point.gpu), int(point.peer)):
        return None
    return f"GPU {point.gpu} cannot access the memory of GPU {point.peer}"


def cost(point: Point) -> Cost:
    """Return the cost: what is sent is read from this GPU's DRAM, and what is received is written
    to it; the peer's DRAM is not counted."""
    size = point.bytes // SIZE * SIZE
    sent, received = size * (point.way != "read"), size * (point.way != "write")
    return Cost(bytes=(Bytes(sent, received), Bytes(received, sent, "link")))


def vectors(point: Point, make: Any) -> Inputs:
    """Return x for the peer, z from the peer, or both."""
    names = {"write": "x", "read": "z", "both": "xz"}[point.way]
    return {name: make((point.bytes // SIZE,), point.dtype) for name in names}


def reference(inputs: Inputs, point: Point) -> Any:
    """Return what this GPU gets, and what the peer gets."""
    return tuple(inputs[name].double() for name in "zx" if name in inputs)


class Chase:
    """A call of the chain in the peer's memory, which is linked anew when its order changed.

    The result is the node that the first `UNROLL` hops reach; the others begin where those of the
    last call ended.
    """

    def __init__(self, inputs: Inputs, point: Point, options: object) -> None:
        self._order, self._hops, self._version = inputs["order"], int(point.hops), -1
        self._kernel = kernel_in(CHASE, arch(self._order), "chase")
        peer = torch.device("cuda", int(point.peer))
        self._nodes = torch.zeros(point.bytes // 8, dtype=torch.int64, device=peer)
        self._end, self._place = (self._order.new_zeros(1) for _ in range(2))
        self._end.copy_(self._nodes[:1])  # torch enables access
        self._nodes[:1].copy_(self._end)

    def __call__(self) -> torch.Tensor:
        """Queue the chase on the current stream."""
        order, base = self._order, self._nodes.data_ptr()
        if order._version != self._version:
            links = order.new_zeros(len(self._nodes)).view(len(order), STEP // 8)
            links[order, 0] = order.roll(-1) * STEP + base
            self._nodes.copy_(links.view(-1))
            self._place.zero_()
            self._version = order._version
        end, place = self._end.data_ptr(), self._place.data_ptr()
        arguments = (base, order.data_ptr(), end, place, self._hops)
        types = (U64, POINTER, POINTER, POINTER, U32)
        self._kernel.launch(stream_of(order), 1, 1, arguments, types)
        return self._end


def chain(point: Point, make: Any) -> Inputs:
    """Draw the order of the nodes: any order is one cycle through all of them."""
    drawn = make((point.bytes // STEP,), "int64", high=2**62)
    return {"order": drawn if drawn.is_meta else drawn.argsort()}  # see `draw_table`


def unchained(point: Point, device: Any) -> str | None:
    """Return why the chain of *point* cannot be followed, or None."""
    if point.bytes % STEP or point.bytes < 2 * STEP or point.hops % UNROLL:
        return f"nodes are {STEP} bytes apart, two at least, and hops are a multiple of {UNROLL}"
    return inaccessible(point, device)


DTYPE = Axis("dtype", "fp32", "dtype of the vector", choices=("fp32",))
ENDS = (
    Axis("gpu", 0, "index of the GPU that copies, that of --device", minimum=0),
    Axis("peer", 1, "index of the other GPU", minimum=0),
)

P2P = Workload(
    name="p2p",
    summary="copy between two GPUs",
    formula="S bytes over the link, in each direction",
    axes=(
        Axis("bytes", 2**28, "bytes in each direction", main=True),
        DTYPE,
        *ENDS,
        Axis("way", "write", "direction", choices=("write", "read", "both")),
    ),
    inputs=vectors,
    reference=reference,
    cost=cost,
    implementations=(
        Implementation("copy_engine", build(by_copy_engine), "copy engine", unlinked),
        Implementation("sm", build(by_sm), "CUDA C kernel", inaccessible),
    ),
    prepared=lambda point: () if point.way == "write" else ("z",),
    terms=lambda point: 0,
)

P2P_LATENCY = Workload(
    name="p2p_latency",
    summary="pointers in another GPU's memory",
    formula="time / hops is the latency of a load",
    axes=(
        Axis("bytes", 2**21, "bytes of the nodes", main=True, minimum=2 * STEP),
        DTYPE,
        *ENDS,
        Axis("hops", HOPS, "loads of a call", minimum=UNROLL),
    ),
    inputs=chain,
    reference=lambda inputs, point: inputs["order"][UNROLL % len(inputs["order"])].reshape(1),
    cost=lambda point: Cost(bytes=(Bytes(0, 8), Bytes(8 * point.hops, 0, "link"))),
    implementations=(Implementation("sm", Chase, "CUDA C kernel, one lane", unchained),),
    prepared=lambda point: ("order",),
    result=lambda point: "int64",
    terms=lambda point: 0,
)
