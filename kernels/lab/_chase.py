"""Follow a chain of pointers with one lane: each load gives the address of the next.

The nodes are `step` bytes apart, and each begins with the 8-byte address of its successor, so that
no arithmetic is between two loads. The chain is one cycle through all nodes: x[i] is the node that
is visited after i hops. A random map would fall into a short cycle that fits a cache.
"""

from __future__ import annotations

import torch
from gpuperf.lab_experiments._cuda import sm_count

from gpuperf import Point
from gpuperf.nvrtc import POINTER, U32, U64, kernel_in

THREADS, SMALL = 256, 512 * 1024
LAPPED_L2_SIZES = 2  # beyond this footprint, every hop of a call starts from a cold L2

CUDA = """
typedef unsigned long long u64;
#define ARGUMENTS                                                                                 \\
    u64 base, const u64 *order, u64 *out, u64 *cycles, unsigned step, unsigned hops, unsigned n
// One lane is active, as all other warps have exited. The store waits for the last load, and so
// does the clock after it.
#define HOPS(load, p, answer)                                                                     \\
    __syncthreads();                                                                              \\
    if (threadIdx.x) return;                                                                      \\
    const u64 began = clock64();                                                                  \\
    for (unsigned h = 0; h < hops; h += 16) {                                                     \\
        _Pragma("unroll") for (int k = 0; k < 16; ++k) asm volatile(load : "+" p :: "memory");    \\
    }                                                                                             \\
    asm volatile("st.global.u64 [%0], %1;" :: "l"(out), "l"((u64)at) : "memory");                 \\
    cycles[0] = clock64() - began;                                                                \\
    out[0] = (answer) / step;
#define CHASE(name, cache)                                                                        \\
    extern "C" __global__ void name(ARGUMENTS) {                                                  \\
        u64 at = base + order[0] * step, seen = 0, node;                                          \\
        for (unsigned i = threadIdx.x; i < n; i += blockDim.x) { /* fills L1 */                   \\
            const u64 from = base + (u64)i * step;                                                \\
            asm volatile("ld.global" cache ".u64 %0, [%1];" : "=l"(node) : "l"(from));           \\
            seen += node; /* an unused load is dropped by ptxas, volatile or not */               \\
        }                                                                                         \\
        if (seen == 1) return; /* never: addresses are larger */                                  \\
        HOPS("ld.global" cache ".u64 %0, [%0];", "l"(at), at - base)                             \\
    }
CHASE(chase_ca, "")
CHASE(chase_cg, ".cg")
extern "C" __global__ void chase_shared(ARGUMENTS) {
    __shared__ u64 nodes[6144];
    const unsigned start = (unsigned)__cvta_generic_to_shared(nodes);
    unsigned at = start + (unsigned)order[0] * step;
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x)
        nodes[i * step / 8] = start + (((const u64*)base)[i * step / 8] - base);
    HOPS("ld.shared.u32 %0, [%0];", "r"(at), at - start)
}
extern "C" __global__ void lap(const char* nodes, u64* out, unsigned step, u64 n) {  // fills the L2
    const u64 threads = gridDim.x * (u64)blockDim.x;
    u64 seen = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += threads)
        seen += __ldcg((const u64*)(nodes + i * step));
    if (seen == 1) out[0] = seen;
}
"""


class Chase:
    """A call of the chain; it is linked anew when its order has changed."""

    def __init__(self, x: torch.Tensor, point: Point, name: str) -> None:
        major, minor = torch.cuda.get_device_capability(x.device)
        self._kernel, self._lap = (kernel_in(CUDA, f"sm_{major}{minor}", k) for k in (name, "lap"))
        self._x, self._point, self._version = x, point, -1
        self._nodes = torch.empty(point.footprint // 8, dtype=torch.int64, device=x.device)
        self._end, self._cycles = (x.new_zeros(1) for _ in range(2))
        self._small = point.footprint <= SMALL and name != "chase_cg"
        l2 = torch.cuda.get_device_properties(x.device).L2_cache_size
        self._laps = SMALL < point.footprint <= LAPPED_L2_SIZES * l2

    def __call__(self) -> torch.Tensor:
        x, step, n = self._x, self._point.step, len(self._x)
        if x._version != self._version:
            link(self._nodes, x, self._nodes.data_ptr(), step)
            self._version = x._version
        stream, nodes, end = torch.cuda.current_stream(x.device).cuda_stream, *self._addresses()
        if self._laps:  # microseconds beside a chase of milliseconds
            of_lap = (POINTER, POINTER, U32, U64)
            self._lap.launch(stream, 8 * sm_count(x), THREADS, (nodes, end, step, n), of_lap)
        addresses = (nodes, x.data_ptr(), end, self._cycles.data_ptr())
        counts = (step, self._point.hops, n if self._small else 0)
        types = (U64, POINTER, POINTER, POINTER, U32, U32, U32)
        self._kernel.launch(stream, 1, THREADS, (*addresses, *counts), types)
        return self._end

    def _addresses(self) -> tuple[int, int]:
        return self._nodes.data_ptr(), self._end.data_ptr()

    def readings(self) -> dict[str, float]:
        """Return the cycles of a hop by the SM's own counter, read at both ends of the chain."""
        return {"cycles": self._cycles.item() / self._point.hops}


def link(nodes: torch.Tensor, order: torch.Tensor, base: int, step: int) -> None:
    """Write the successor's address into each node, for *nodes* that begin at *base*."""
    nodes.view(len(order), step // 8)[order, 0] = order.roll(-1) * step + base
