"""The kernels of long rows for the CPU, with the instructions in their `asm` in C++: are results
right, whichever blocks and warps share a row, and is each copy awaited before it is read?

The code of a GPU is not run: what a GPU rounds, loads and synchronizes is tested on one.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from every_case import CPU
from gpuperf.kernels import _rows_cuda as cuda
from gpuperf.kernels import norms, softmax
from gpuperf.kernels._norms_triton import EPS

from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point
from gpuperf.nvrtc import compile_source, read_source

HEADER = Path(__file__).with_name("cuda_on_cpu.h")
M, ROUNDOFF = 11, {"bf16": 2.0**-8, "fp16": 2.0**-11}
INSTRUCTIONS = {
    "ex2.approx": "y = std::exp2(x);",
    "cvt.f32.f16": "to[2 * i] = from_fp16(words[i]), to[2 * i + 1] = from_fp16(words[i] >> 16);",
    "cvt.rn.bf16x2": "words[i] = to_bf16(from[2 * i]) | to_bf16(from[2 * i + 1]) << 16;",
    "cvt.rn.f16x2": "words[i] = to_fp16(from[2 * i]) | to_fp16(from[2 * i + 1]) << 16;",
    "barrier.cluster": "meet_cluster();",
    "cp.async.ca": "copy_16_bytes(ring + place * LINE, from, there);",
    "cp.async.commit": "end_group();",
    "cp.async.wait": "await_groups(DEPTH - 1);",
    "// once more": "",
    "griddepcontrol": "",
    "ld.shared": "piece = read_shared(ring + place * LINE);",
    "st.shared": "store_to_peer(__cvta_generic_to_shared(to), peer, value);",
}
# Blocks of a cluster, pieces of a thread, rows on their way, clusters, and elements of a row: those
# of the last piece are missing, or all.
SHAPES = [(1, 1, 1, 1, 504), (2, 1, 2, 2, 1024), (3, 2, 3, 1, 3000), (2, 2, 2, 5, 2048)]
THREADS = 64


def for_cpu(source: str) -> str:
    """Return *source* with C++ in place of its instructions, and shared memory of its block."""
    statements = re.findall(r"asm(?: volatile)?\(.*?\);\n", source, re.S)
    assert len(statements) == len(INSTRUCTIONS)
    for statement in statements:
        (name,) = [name for name in INSTRUCTIONS if name in statement]
        source = source.replace(statement, INSTRUCTIONS[name] + "\n")
    own = "auto& shared = *(Shared*)block->shared;"
    assert source.count("__shared__ Shared shared;") == 2
    source = source.replace("__shared__ Shared shared;", own)
    memory = "uint4* const memory = (uint4*)(block->shared + 4096);"  # after what is shared
    source = source.replace("    part.ring =", f"    {memory}\n    part.ring =")
    return source.replace("extern __shared__ uint4 memory[];", "")


def built(
    folder: Path, file: str, entry: str, dtype: str, shape: tuple[int, ...], **constants: bool
) -> Callable[..., None]:
    """Return the function *entry*(tensors and numbers) of *file* for the CPU."""
    blocks, pieces, depth, clusters, n = shape
    defined = {"cluster": blocks, "threads": THREADS, "pieces": pieces, "depth": depth, "per_sm": 1}
    defined |= {"bf16": dtype == "bf16", "full": n == blocks * THREADS * pieces * cuda.WIDE}
    defined |= constants
    lines = "".join(f"#define {key.upper()} {int(value)}\n" for key, value in defined.items())
    text = for_cpu(read_source("rows.cu") + read_source(file))
    (parameters,) = re.findall(rf"CLUSTERED {entry}\(\s*(.*?)\) {{", text, re.S)
    names = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
    run = f"run_clusters({clusters}, CLUSTER, THREADS, [=] {{ {entry}({names}); }});"
    main = f'extern "C" void run({parameters}) {{ {run} }}'
    (folder / "rows.cpp").write_text(f'#include "{HEADER}"\n{lines}{text}{main}', encoding="utf-8")
    library = folder / f"{entry}.so"
    flags = ["-O2", "-std=c++20", "-shared", "-fPIC", "-pthread", "-w"]
    flags += ["-march=native", "-ffp-contract=fast"]  # fused multiply-adds, as NVRTC makes them
    subprocess.run(["g++", *flags, str(folder / "rows.cpp"), "-o", str(library)], check=True)
    run_it = ctypes.CDLL(str(library)).run
    kinds = {"*": ctypes.c_void_p, "u32": ctypes.c_uint, "u64": ctypes.c_uint64}
    kinds["float"] = ctypes.c_float
    types = [next(k for word, k in kinds.items() if word in each) for each in parameters.split(",")]

    def call(*arguments: Any) -> None:
        values = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        run_it(*(kind(value) for kind, value in zip(types, values, strict=True)))

    return call


def drawn(workload: Any, n: int, **axes: str) -> tuple[Point, dict[str, torch.Tensor]]:
    point = Point({"m": M, "n": n, "mode": "fwd+bwd", **axes})
    return point, dict(workload.inputs(point, bind_make(torch.device("cpu"), 3)))


def assert_near(got: torch.Tensor, exact: torch.Tensor, dtype: str) -> None:
    assert (got.double() - exact).abs().max() <= 2 * ROUNDOFF[dtype] * exact.abs().max()


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@needs_compiler
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_softmax_and_its_gradient_are_right(
    shape: tuple[int, ...], dtype: str, tmp_path: Path
) -> None:
    n = shape[-1]
    point, inputs = drawn(softmax.SOFTMAX, n, dtype=dtype)
    x, dy = inputs["x"], inputs["dy"]
    x[0, n // 3 :], x[1] = -torch.inf, -300.0
    exact, slope = softmax.SOFTMAX.reference(inputs, point)
    forward = built(tmp_path, "softmax.cu", "softmax", dtype, shape)
    backward = built(tmp_path, "softmax.cu", "softmax_backward", dtype, shape)
    taken = torch.zeros(2, dtype=torch.int32)
    for _ in range(2):  # a launch leaves the count of rows as it was
        y, dx = torch.full_like(x, torch.nan), torch.full_like(x, torch.nan)
        forward(x, y, taken, M, n, n)
        assert_near(y, exact, dtype)
        backward(y, dy, dx, taken, M, n, n)
        assert_near(dx, slope, dtype)
        assert not taken.any()


@needs_compiler
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_norm_and_its_gradients_are_right(
    shape: tuple[int, ...], centred: bool, added: bool, tmp_path: Path
) -> None:
    n, dtype = shape[-1], "bf16"
    workload = norms.LAYERNORM if centred else norms.RMSNORM
    point, inputs = drawn(workload, n, dtype=dtype, residual="on" if added else "off")
    x, weight, dy = inputs["x"], inputs["weight"], inputs["dy"]
    x += torch.linspace(-2.0, 8.0, n)  # the mean is not zero, and that of each warp is another
    if centred and not added:  # whose sum would be rounded to another row
        x[0, 0], x[1] = 3000.0, x[1] + 500.0  # the first element is far from others, and from zero
        x[3, : n // 3] = 3000.0  # and many are
    exact, *others = workload.reference(inputs, point)
    constants: Mapping[str, bool] = {"centred": centred, "added": added, "kept": True}
    y, total, dx = (torch.full_like(x, torch.nan) for _ in range(3))
    mean, rstd = torch.full((2, M), torch.nan, dtype=torch.float32)
    vectors = (weight, inputs.get("bias", weight))
    forward = built(tmp_path, "norms.cu", "normalize", dtype, shape, **constants)
    taken = torch.zeros(2, dtype=torch.int32)
    given = (x, inputs.get("residual", x), *vectors, y, total, mean, rstd, taken)
    forward(*given, M, n, n, EPS)
    assert_near(y, exact, dtype)
    if added:
        assert_near(total, others[0], dtype)
    elif centred:
        variance = x.double().var(1, correction=0)
        torch.testing.assert_close(rstd.double(), (variance + EPS).rsqrt(), rtol=1e-5, atol=0)
    sums = torch.full((1 + centred, shape[3], n), torch.nan, dtype=torch.float32)
    backward = built(tmp_path, "norms.cu", "normalize_backward", dtype, shape, **constants)
    rows = total if added else x
    given = (rows, weight, dy, inputs.get("dtotal", dy), mean, rstd, dx, sums)
    backward(*given, M, n, n)
    for got, want in zip((dx, *sums.sum(1)), others[added:], strict=True):
        assert_near(got, want, dtype)


@needs_compiler
def test_constant_rows_have_no_gradient_of_the_weight(tmp_path: Path) -> None:
    shape = (2, 2, 2, 2, 2048)
    point, inputs = drawn(norms.LAYERNORM, shape[-1], dtype="bf16")
    x, weight, dy = inputs["x"], inputs["weight"], inputs["dy"]
    x.fill_(9984.0)  # the mean is exact, and 1/√ε is large
    mean, rstd = torch.full((M,), 9984.0), torch.full((M,), EPS**-0.5)
    sums, dx = torch.full((2, shape[3], shape[-1]), torch.nan), torch.empty_like(x)
    constants = {"centred": True, "added": False, "kept": True}
    backward = built(tmp_path, "norms.cu", "normalize_backward", "bf16", shape, **constants)
    backward(x, weight, dy, dy, mean, rstd, dx, sums, M, shape[-1], shape[-1])
    assert not sums[0].any()
    assert_near(dx, norms.LAYERNORM.reference(inputs, point)[1], "bf16")


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("file", ["softmax.cu", "norms.cu"])
def test_the_kernels_compile(file: str, arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings (Linux)")
    for n, (tried, *held) in zip((30000, 65536, 131072), cuda.MOST_HELD, strict=True):
        shape = next(cuda.shapes(tried, n, *held))
        text = cuda.source_of(file, n, shape, bf16=True, centred=True, added=True, kept=True)
        assert compile_source(text, arch).startswith(b"\x7fELF")


def test_the_shapes_fit_rows_and_an_sm() -> None:
    for n in (8192, 10000, 16384, 20000, 30000, 65536, 131072):
        for tried, inputs, vectors in cuda.MOST_HELD:
            for shape in cuda.shapes(tried, n, inputs, vectors):
                part = cuda.part_of(shape)
                blocks = -(-n // part)
                assert blocks <= 8
                assert n <= blocks * part <= cuda.FULLEST * n
                assert shape["per_sm"] * shape["threads"] <= 2048
                held = (shape["depth"] * inputs + vectors) * part * 2
                assert shape["per_sm"] * held <= cuda.SHARED


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        ({"n": 4096}, "takes rows of 8192 elements or more"),
        ({"n": 20001}, "in multiples of 8"),
        ({"n": 200000}, "no cluster of blocks holds rows of this length well"),
        ({"dtype": "fp32"}, "takes bf16 and fp16 only"),
    ],
)
def test_what_the_kernels_do_not_take_is_refused_in_a_sentence(
    axes: Mapping[str, Any], reason: str
) -> None:
    hopper = replace(CPU.facts, kind="cuda", capability="9.0")
    point = Point({"m": M, "n": 16384, "dtype": "bf16"})
    assert cuda.supports(point, hopper) is None
    assert reason in (cuda.supports(Point({**point, **axes}), hopper) or "")
    ampere = replace(hopper, capability="8.0")
    assert cuda.supports(point, ampere) == "needs an NVIDIA GPU of compute capability 9.0"
