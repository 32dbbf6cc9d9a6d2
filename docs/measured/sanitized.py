r"""Run each kernel of gpuperf's own once, at sizes that few tiles divide, under compute-sanitizer.

    compute-sanitizer --tool memcheck --report-api-errors no \
        python docs/measured/sanitized.py [NAME ...]

`--tool racecheck` and `--tool synccheck` find races in shared memory and wrong barriers. A NAME
keeps the cases that contain it. Each kernel has the first of the tiles that tuning tries. Calls of
the driver are not reported, as some look up functions that an older driver lacks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from gpuperf.kernels._gluon import barriers, gl, gluon_jit, mbarrier
from gpuperf.kernels._matmul_clusters import multiply_by
from gpuperf.kernels._matmul_tiles import Tile

from gpuperf import Point, jit
from gpuperf.errors import Unsupported
from gpuperf.measure.device import open_device
from gpuperf.measure.inputs import bind_make
from gpuperf.measure.registry import load_source

MODES = ("fwd", "fwd+bwd")
VECTORS = ("sincos", "copy", "write", "triad", "vector_add")
DTYPES = (("triton", ("fp32", "bf16")), ("cuda", ("fp32",)))
# Axes of a workload, in the order in which they vary, and the implementations that are our own.
CASES: tuple[tuple[str, str, dict[str, tuple[Any, ...]]], ...] = (
    ("matmul", "naive tiled triton", {"m": (200,), "n": (272,), "k": (336,)}),
    ("matmul", "gluon", {"m": (200, 700), "n": (272,), "k": (1040,), "dtype": ("bf16", "fp8")}),
    (
        "attention",
        "triton_flash gluon_flash",
        {
            "batch": (1,),
            "heads": (2,),
            "seq": (272,),
            "head_dim": (64, 128),
            "causal": ("no", "yes"),
            "mode": MODES,
        },
    ),
    # Programs of this forward compute several tiles each.
    (
        "attention",
        "gluon_flash",
        {
            "batch": (1,),
            "heads": (90,),
            "seq": (272,),
            "head_dim": (64, 128),
            "causal": ("no", "yes"),
        },
    ),
    (
        "attention",
        "gluon_flash",
        {"batch": (1,), "heads": (4,), "gqa": (2,), "seq": (300,), "kv": (500,), "mode": MODES},
    ),
    (
        "attention",
        "gluon_flash",
        {"batch": (1,), "heads": (2,), "seq": (300,), "window": (70,), "mode": MODES},
    ),
    (
        "attention",
        "triton_flash gluon_flash",
        {"batch": (1,), "heads": (2,), "seq": (300,), "softcap": (20,), "mode": MODES},
    ),
    (
        "attention",
        "triton_flash gluon_flash",
        {"batch": (1,), "heads": (2,), "seq": (300,), "documents": (3,), "mode": MODES},
    ),
    *(
        (name, own, {"m": (70,), "n": sizes, "residual": ("off", "on"), "mode": MODES})
        for name in ("layernorm", "rmsnorm")
        for own, sizes in (("triton", (1000, 8192, 20_008)), ("cuda", (8192, 40_008)))
    ),
    ("softmax", "safe online", {"m": (70,), "n": (1000, 20_008)}),
    ("softmax", "fused", {"m": (70,), "n": (1000, 8192, 16384, 20_008), "mode": MODES}),
    ("softmax", "cuda", {"m": (70,), "n": (8192, 40_008), "mode": MODES}),
    ("cross_entropy", "triton", {"m": (70,), "v": (5003,), "mode": MODES}),
    (
        "linear_cross_entropy",
        "chunked triton",
        {"m": (200,), "v": (1003,), "k": (136,), "mode": MODES},
    ),
    (
        "linear",
        "triton",
        {
            "m": (1, 20, 300),
            "n": (272,),
            "k": (1024,),
            "weights": ("unquantized", "fp8", "int8", "int8-dynamic", "int4"),
        },
    ),
    ("linear", "cuda", {"m": (1, 9), "n": (272,), "k": (1024,), "weights": ("int8", "int4")}),
    (
        "decode",
        "triton_split",
        {
            "batch": (2,),
            "heads": (8,),
            "kv": (300,),
            "layout": ("contiguous", "paged"),
            "dtype": ("bf16",),
        },
    ),
    ("kv_append", "triton", {"batch": (3,), "kv": (100,), "layout": ("contiguous", "paged")}),
    ("mlp", "triton", {"b": (70,), "n": (136,), "h": (272,), "form": ("plain", "gated")}),
    ("sigmoid_stack", "stored stored_inner recomputed", {"n": (5003,), "dtype": ("fp32",)}),
    ("block", "ours", {"heads": (4,), "seq": (100,), "hidden": (512,)}),
    *((name, own, {"n": (5003,), "dtype": of}) for name in VECTORS for own, of in DTYPES),
    ("read", "triton cuda", {"m": (33,), "n": (5003,), "dtype": ("fp32",)}),
    ("fma", "cuda", {"n": (4096,), "repeats": (2,)}),
    ("special", "cuda cuda_fast", {"n": (4096,), "repeats": (2,)}),
    ("l1", "cuda", {"m": (8,), "n": (2048,), "passes": (2,)}),
    ("l2", "cuda", {"n": (4096,), "passes": (2,)}),
)
# A tile of the product in clusters has warpgroups, columns, blocks of a cluster and parts of k, and
# may be turned.
TILES = (Tile(1, 72, 1, 3), Tile(2, 128, 2), Tile(2, 280, 2, 3), Tile(3, 200, 1), Tile(2, 256, 1))
FP8_TILES = (Tile(1, 72, 1, 3), Tile(2, 192, 2), Tile(2, 160, 1, 3), Tile(3, 104, 2))
TURNED = (Tile(1, 72, 1, 3, True), Tile(2, 280, 2, 3, True), Tile(3, 200, 1, 1, True))
FP8_TURNED = (Tile(2, 184, 2, 3, True), Tile(3, 104, 1, 1, True))


@gluon_jit
def mark(x, PLACE: gl.constexpr):
    """Store a one."""
    gl.store(x + PLACE, 1.0)


@gluon_jit
def specialized_warps(x):
    """Start warps of three kinds that share nothing: what is reported of them is Triton's own."""
    gl.warp_specialize([(mark, (x, 0)), (mark, (x, 1)), (mark, (x, 2))], [4, 1], [24, 24])


@gluon_jit
def mark_after(x, bars, PLACE: gl.constexpr):
    """Arrive at the barrier, or wait for it, and store a one."""
    if PLACE == 0:
        mbarrier.arrive(bars.index(0), count=1)
    else:
        mbarrier.wait(bars.index(0), 0)
    gl.store(x + PLACE, 1.0)


@gluon_jit
def shared_barrier(x):
    """Start warps of three kinds that share a barrier, and nothing else."""
    bars = barriers(2, 1)
    gl.warp_specialize(
        [(mark_after, (x, bars, 0)), (mark_after, (x, bars, 1)), (mark_after, (x, bars, 2))],
        [4, 1],
        [24, 24],
    )


def points(axes: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Return every combination of the values of *axes*."""
    if not axes:
        yield {}
        return
    (name, values), *rest = axes.items()
    for value in values:
        for others in points(dict(rest)):
            yield {name: value, **others}


def runs() -> Iterator[tuple[str, Any]]:
    """Return the name of each case, and a function that runs it once."""
    workloads, _ = load_source("gpuperf.kernels")
    device = open_device("cuda:0" if torch.cuda.is_available() else "cpu")
    for name, own, axes in CASES:
        workload = workloads[name]
        default = {axis.name: axis.default for axis in workload.axes}
        for implementation in workload.implementations:
            for chosen in points(axes) if implementation.name in own.split() else ():
                values = {**default, **chosen}
                if values["dtype"] == "auto":
                    values["dtype"] = "bf16" if device.facts.kind == "cuda" else "fp32"
                point = Point(values)
                words = ",".join(f"{key}={value}" for key, value in chosen.items())

                def run(w: Any = workload, i: Any = implementation, p: Point = point) -> None:
                    reason = i.supports(p, device.facts)
                    if reason is not None:
                        raise Unsupported(reason)
                    given = {key: values[0] for key, values in i.options.items()}
                    i.build(w.inputs(p, bind_make(device.torch, 0)), p, given)()

                yield f"{name}/{implementation.name}[{words}]", run

    for kind, kernel in (("warps", specialized_warps), ("barrier", shared_barrier)):

        def start(kernel: Any = kernel) -> None:
            kernel[(132,)](torch.zeros(3, device="cuda"), num_warps=4, maxnreg=128)

        yield f"gluon/specialized_{kind}", start
    for dtype, tiles in (
        (torch.bfloat16, TILES + TURNED),
        (torch.float8_e4m3fn, FP8_TILES + FP8_TURNED),
    ):
        for tile in tiles:

            def multiply(tile: Tile = tile, dtype: torch.dtype = dtype) -> None:
                a = torch.randn((700, 1552), device="cuda").to(dtype)
                b = torch.randn((1552, 1008), device="cuda").to(dtype)
                multiply_by(a, b.t().contiguous().t() if dtype.itemsize == 1 else b, tile)()

            words = "x".join(map(str, tile))
            yield f"matmul/cuda[tile={words},dtype={str(dtype)[6:]}]", multiply


def main(names: list[str]) -> None:
    """Run the cases whose names contain one of *names*, or all."""
    jit.read_choice = lambda kind, place, every: every[0]
    count, failed = 0, 0
    for name, run in runs():
        if names and not any(part in name for part in names):
            continue
        began = time.perf_counter()
        try:
            run()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
        except Exception as error:
            failed += 1
            print(f"{name}: not run: {str(error).splitlines()[0][:150]}", flush=True)
            continue
        count += 1
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
    print(f"{count} cases ran, {failed} did not")


if __name__ == "__main__":
    main(sys.argv[1:])
