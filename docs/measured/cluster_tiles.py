"""Time the tiles that the model of `matmul/cuda` puts first, beside torch.

`python docs/measured/cluster_tiles.py > docs/measured/cluster_tiles.txt` runs on a Hopper GPU for
about a minute. A line has a product m x n x k and its dtype, or a tile as `Tile` has it: warpgroups
of 64 rows, columns, blocks of a cluster, parts of k, and whether it is turned. Then comes the
median time of nine launches in µs, between two events, some 4 µs of which are beside the kernel;
each launch finds its operands in DRAM. `wrong` follows where a result differs from torch's.
"""

from __future__ import annotations

import statistics
import time
import tomllib
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch
from gpuperf.kernels import _matmul_clusters as clusters
from gpuperf.kernels import _matmul_tiles as tiles

from gpuperf.nvrtc import compile_together

Size = tuple[int, int, int]
SUITE = tomllib.loads(Path(__file__).with_name("random_products.toml").read_text())
RANDOM: tuple[Size, ...] = tuple(
    (int(case["m"]), int(case["n"]), int(case["k"])) for case in SUITE["case"]
)
SQUARE: tuple[Size, ...] = tuple((n, n, n) for n in (2048, 3072, 4096, 5120, 6144, 8192))
UNALIGNED: tuple[Size, ...] = ((1000, 9000, 7000), (5000, 3000, 2000), (6400, 5000, 4096))
THIN: tuple[Size, ...] = tuple((m, 8192, 8192) for m in (16, 64, 128, 256))
SIZES = {
    torch.bfloat16: (*RANDOM, *SQUARE, *UNALIGNED, *THIN),
    torch.float8_e4m3fn: (*SQUARE, *THIN),
}
TILES = 7  # of each orientation
OFF = 0.02  # of the largest element: more than sums in another order differ by
LAUNCHES = 9
CYCLES = 400_000  # that the stream waits before a launch, in which the host queues it


def microseconds(call: Callable[[], object], others: torch.Tensor) -> float:
    """Return the median time of *call*, between launches that fill the L2 with *others*."""
    call()
    times: list[float] = []
    for _ in range(LAUNCHES):
        others.zero_()
        torch.cuda.synchronize()
        time.sleep(0.001)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(CYCLES)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def first_tiles(size: Size, item: int, processors: int) -> list[tiles.Tile]:
    """Return the tiles with the fewest cycles by the model for elements of *item* bytes."""
    ranked = tiles.ranked(*size, processors, item)
    some: list[tiles.Tile] = []
    for turned in (False, True):
        of_one = (tile for tile in ranked if tile.turned == turned)
        some += islice(tiles.two_of_a_size(of_one), TILES)
    return some


def operands(size: Size, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B; B of fp8 is column-major."""
    m, n, k = size
    a, b = (torch.randn(shape, device="cuda").to(dtype) for shape in ((m, k), (k, n)))
    return a, b.t().contiguous().t() if dtype.itemsize == 1 else b


def main() -> None:
    """Print the times of the tiles of all products."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        raise SystemExit("cluster_tiles.py needs a Hopper GPU, such as an H100.")
    properties = torch.cuda.get_device_properties(0)
    print(f"{properties.name}, torch {torch.__version__}")
    others = torch.empty(4 * properties.L2_cache_size, dtype=torch.uint8, device="cuda")
    one = torch.ones((), device="cuda")
    for dtype, sizes in SIZES.items():
        for size in sizes:
            a, b = operands(size, dtype)

            def library(a: torch.Tensor = a, b: torch.Tensor = b) -> torch.Tensor:
                if a.itemsize == 1:
                    return torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
                return a @ b

            exact = library().float()
            found = first_tiles(size, dtype.itemsize, properties.multi_processor_count)
            compile_together([clusters.source_of(tile, dtype) for tile in found], clusters.ARCH)
            name = "x".join(map(str, size))
            print(f"{name} {str(dtype)[6:]}: torch {microseconds(library, others):.2f}", flush=True)
            for tile in found:
                call = clusters.multiply_by(a, b, tile)
                off = float((call().float() - exact).abs().max() / exact.abs().max())
                words = [f"{microseconds(call, others):.2f}", *["wrong"] * (not off <= OFF)]
                print(" ", *map(int, tile), *words, flush=True)


if __name__ == "__main__":
    main()
