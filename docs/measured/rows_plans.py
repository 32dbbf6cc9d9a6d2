"""Time the tilings of gpuperf's kernels of rows, for the table of `kernels/ops/_rows_hopper.py`.

`python docs/measured/rows_plans.py` runs on a Hopper GPU, mostly to compile. For norms and softmax
of 128 Mi elements in bf16 it prints the TB/s of a copy and of the fastest tilings, then the same of
cross-entropy, and last the lines of the table CHOSEN. `--lengths 4096,16384` tries rows of these
lengths only, `--only layernorm,norm --mode fwd` these kernels. A tiling that the GPU cannot launch
is left out.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from gpuperf.kernels import _norms_triton as norms_triton
from gpuperf.kernels import _softmax_triton as softmax_triton
from gpuperf.kernels import cross_entropy, norms, softmax
from gpuperf.kernels._rows import piece_tilings, tiling_of, tilings

from gpuperf import Point
from gpuperf.jit import time_candidate

ELEMENTS = 128 << 20
NEXT = 6  # the tilings that are printed of each kernel
LENGTHS = "1024,2048,4096,8192,16384,32768,65536"
KERNELS = (  # the name in CHOSEN, the workload, and whether a residual is added
    ("layernorm", norms.LAYERNORM, "off"),
    ("norm", norms.RMSNORM, "off"),
    ("layernorm_residual", norms.LAYERNORM, "on"),
    ("norm_residual", norms.RMSNORM, "on"),
    ("softmax", softmax.SOFTMAX, "off"),
)
LOGITS = ((4096, 131072), (8192, 50257))
Tiling = Mapping[str, int]
Candidate = tuple[Tiling, Callable[[], Callable[[], Any]]]


def make(shape: Any, dtype: str, high: int | None = None) -> torch.Tensor:
    """Return random numbers on the GPU: integers below *high*, or normally distributed ones."""
    kind = {"bf16": torch.bfloat16, "int64": torch.int64}[dtype]
    x = torch.empty(shape, dtype=kind, device="cuda")
    return x.random_(0, high) if high else x.normal_()


def softmax_candidates(inputs: Mapping[str, Any], mode: str) -> Iterator[Candidate]:
    """Yield the tilings of softmax, each with the function that makes its call."""
    x, is_forward = inputs["x"], mode == "fwd"
    kernels = softmax_triton.softmax_fused_kernel, softmax_triton.softmax_backward_kernel
    kernel = kernels[not is_forward]
    given = [x] if is_forward else [torch.softmax(x, 1), inputs["dy"]]
    result = torch.empty_like(x)
    for tiling in softmax_triton.tilings_of(given):
        yield tiling, partial(softmax_triton.fused_call, kernel, result, given, tiling)


def norm_candidates(inputs: Mapping[str, Any], mode: str) -> Iterator[Candidate]:
    """Yield the tilings of a norm, each with the function that makes its call."""
    n, result = inputs["x"].shape[1], norms_triton.empty_result(inputs)
    if mode == "fwd":
        for tiling in [*tilings(n, 2, 1 + ("residual" in inputs)), *piece_tilings(n)]:
            yield tiling, partial(norms_triton.forward_call, inputs, result, tiling, False)
        return
    norms_triton.forward_call(inputs, result, tiling_of(1, 16, 0, 0, 1, 0, 0))()
    for tiling in norms_triton.backward_tilings(n, 2):
        yield tiling, partial(norms_triton.backward_call, inputs, result, tiling)


def timed(candidates: Iterable[Candidate]) -> list[tuple[float, tuple[int, ...]]]:
    """Return the seconds and the values of the tilings that run, the fastest first."""
    times: list[tuple[float, tuple[int, ...]]] = []
    for tiling, build in candidates:
        try:
            times.append((time_candidate(build()), tuple(tiling.values())))
        except Exception:  # too much shared memory, too many registers
            torch.cuda.synchronize()  # raises if the GPU is in a bad state
    return sorted(times) or [(float("inf"), ())]


def try_rows(name: str, workload: Any, residual: str, n: int, mode: str) -> str:
    """Print the rates of a kernel with rows of n elements, and return its line of CHOSEN."""
    axes = {"m": ELEMENTS // n, "n": n, "mode": mode, "residual": residual, "dtype": "bf16"}
    point = Point(axes)
    inputs, size = workload.inputs(point, make), workload.cost(point).dram_bytes
    candidates = softmax_candidates if name == "softmax" else norm_candidates
    times = timed(candidates(inputs, mode))
    time_s, values = times[0]
    key = name + "_backward" * (mode == "bwd")
    others = " ".join(f"{size / each_s / 1e12:.2f} {each}" for each_s, each in times[1:NEXT])
    print(f"{key:27} {n:6} {size / time_s / 1e12:.2f} {values}; next {others}", flush=True)
    return f'    ("{key}", {n}, 2): ({values},),' if values else f"    # {key} {n}: no tiling ran"


def try_logits(m: int, v: int) -> None:
    """Print the rates of cross-entropy of logits (m, v)."""
    point = Point({"m": m, "v": v, "mode": "bwd", "dtype": "bf16"})
    inputs, lse = cross_entropy.CROSS_ENTROPY.inputs(point, make), torch.empty(m, device="cuda")
    for name, call, every, passes in (
        ("cross_entropy", cross_entropy.losses_call, cross_entropy.TILINGS, 1),
        ("cross_entropy_backward", cross_entropy.gradient_call, cross_entropy.GRADIENTS, 2),
    ):
        times = timed((tiling, partial(call, inputs, lse, tiling)) for tiling in every)
        time_s, values = times[0]
        print(f"{name:27} {m}x{v} {2 * passes * m * v / time_s / 1e12:.2f} {values}", flush=True)


def main() -> None:
    """Print the rates in TB/s, then the lines of CHOSEN."""
    parser = argparse.ArgumentParser(description="Time the tilings of the kernels of rows.")
    parser.add_argument("--lengths", default=LENGTHS, help="elements of a row")
    parser.add_argument("--only", default="", help="kernels, such as layernorm")
    parser.add_argument("--mode", default="fwd,bwd", help="forward, backward or both")
    given = parser.parse_args()
    lengths, modes = [int(word) for word in given.lengths.split(",")], given.mode.split(",")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        raise SystemExit("rows_plans.py needs a Hopper GPU, such as an H100.")
    x, y = make(ELEMENTS, "bf16"), make(ELEMENTS, "bf16")
    copy_s = time_candidate(lambda: y.copy_(x))
    print(f"{torch.cuda.get_device_name()}: copy {4 * ELEMENTS / copy_s / 1e12:.2f} TB/s")
    kernels = [kernel for kernel in KERNELS if not given.only or kernel[0] in given.only.split(",")]
    every = [(*kernel, n, mode) for kernel in kernels for n in lengths for mode in modes]
    lines = [try_rows(*each) for each in every]
    for m, v in LOGITS if not given.only else ():
        try_logits(m, v)
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
