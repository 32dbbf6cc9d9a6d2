"""Count the cycles that an L2 slice takes for a written part of a sector, by Nsight Compute.

`python docs/measured/partial_writes.py > docs/measured/partial_writes.txt` runs ncu for 30 seconds
on a GPU whose counters may be read. Four kernels write a transposed fp32 matrix of 16384²: `naive`,
with 4 bytes of 32 sectors in a warp's store, `halves`, with 16 bytes of 32 sectors, and `tiled` and
`padded` through shared memory, with 4 whole sectors. A request to read takes one cycle of the input
of a slice; the other cycles of the input are those of writes.
"""

import csv
import os
import subprocess
import sys

N, TILE, THREADS = 16384, 32, 256
KERNELS = ("naive", "halves", "tiled", "padded")
READS = "lts__t_requests_srcunit_tex_op_read.sum"
WRITES = "lts__t_requests_srcunit_tex_op_write.sum"
SECTORS = "lts__t_sectors_srcunit_tex_op_write.sum"
BUSY, CYCLES = "lts__xbar2lts_cycles_active.sum", "lts__cycles_elapsed.sum"
SECONDS = "gpu__time_duration.sum"
HALVES = """
extern "C" __global__ void halves(const float* x, float* y, unsigned n, unsigned turned) {
    const unsigned all = n / 32, row = blockIdx.x / all * 32, column = blockIdx.x % all * 32;
    const unsigned lane = threadIdx.x % 32, first = row + threadIdx.x / 32 * 8;
    if (threadIdx.x >= 128) return;
    float v[8];
    for (int k = 0; k < 8; k++) v[k] = x[(first + k) * (size_t)n + column + lane];
    float4* to = (float4*)(y + (column + lane) * (size_t)n + first);
    to[0] = make_float4(v[0], v[1], v[2], v[3]);
    to[1] = make_float4(v[4], v[5], v[6], v[7]);
}
"""


def launch() -> None:
    """Launch each kernel once, and check its result."""
    import torch
    from gpuperf.lab_experiments._cuda import cuda_call
    from gpuperf.lab_experiments.transpose import CUDA

    x = torch.randn(N, N, device="cuda")
    for name in KERNELS:
        y = torch.zeros_like(x)
        cuda_call(CUDA + HALVES, name, y, (N // TILE) ** 2, THREADS, x, y, N, 1)()
        assert torch.equal(y, x.T), name


def counted() -> list[dict[str, str]]:
    """Return the counts of each kernel, in the base units of ncu."""
    metrics = ",".join((READS, WRITES, SECTORS, BUSY, CYCLES, SECONDS))
    words = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--metrics", metrics]
    words += ["-k", f"regex:^({'|'.join(KERNELS)})$", sys.executable, __file__, "launch"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    return rows[1:]  # the first has the units


def main() -> None:
    """Print a row a kernel."""
    import torch

    print(torch.cuda.get_device_name(0) + os.linesep)
    print("kernel         GB/s  sectors a write  input busy  cycles a write")
    for row in counted():
        reads, writes, sectors, busy, cycles, nanoseconds = (
            float(row[name].replace(",", ""))
            for name in (READS, WRITES, SECTORS, BUSY, CYCLES, SECONDS)
        )
        print(
            f"{row['Kernel Name']:10}{8 * N * N / nanoseconds:9.0f}{sectors / writes:17.2f}"
            f"{busy / cycles:12.1%}{(busy - reads) / writes:16.2f}"
        )


if __name__ == "__main__":
    launch() if sys.argv[1:] == ["launch"] else main()
