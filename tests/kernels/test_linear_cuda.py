"""linear.cu for the CPU, with the instructions in its `asm` in C++: where does each weight go?

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

import pytest
import torch
from every_case import CPU, pick
from gpuperf.kernels import _linear_cuda as cuda
from gpuperf.kernels.linear import LINEAR

from gpuperf.measure.checks import compare
from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point
from gpuperf.nvrtc import compile_source

HEADER = Path(__file__).with_name("cuda_on_cpu.h")
LOADED = "if (wanted) to = *reinterpret_cast<const uint4*>(from);"
INSTRUCTIONS = {
    "linear": {
        "ld.global": LOADED,
        "fma.rn.bf16x2": "result = fma_bf16x2(bytes, factor, offset);",
        "mma.sync": "mma(sums, w, x, more_x);",
        "cvt.rn.bf16.f32": "y[(u64)column * n + j] = to_bf16(total);",
    },
    "linear_one": {
        "ld.global": LOADED,
        "mma.sync": "mma_s8(sums, w, x, more_x);",
        "cvt.rni.s32": "result = std::nearbyint(value);",
        "cvt.rn.bf16.f32": "y[j] = to_bf16(total);",
    },
}
MEMORY = "extern __shared__ uint4 memory[];"


def point(weights: str, m: int, n: int, k: int, group: int = 128) -> Point:
    return Point(m=m, n=n, k=k, group=group, weights=weights, dtype="bf16")


def for_cpu(source: str, name: str) -> str:
    """Return *source* of the kernel *name* with C++ in place of its instructions, and `run`."""
    instructions = INSTRUCTIONS[name]
    statements = re.findall(r"asm(?: volatile)?\(.*?\);\n", source, re.S)
    assert len(statements) == len(instructions)
    for statement in statements:
        (chosen,) = [word for word in instructions if word in statement]
        source = source.replace(statement, instructions[chosen] + "\n")
    source = source.replace(MEMORY, "#define memory ((uint4*)block->shared)")
    numbers = "u32 n, u32 k" if name == "linear_one" else "u32 m, u32 n, u32 k"
    parameters = f"const u16* x, const u8* weight, const u16* scale, u16* y, {numbers}"
    names = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
    run = f"run_blocks((n + ROWS - 1) / ROWS, THREADS, [=] {{ {name}({names}); }});"
    return f'#include "{HEADER}"\n{source}extern "C" void run({parameters}) {{ {run} }}\n'


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@needs_compiler
@pytest.mark.parametrize(
    ("at", "shape"),
    [
        (point("int4", 1, 16, 128, 64), (1, 1, 1, 1)),
        (point("int4", 7, 70, 1024), (2, 2, 3, 2)),  # the warps of a block share k unevenly
        (point("int4", 8, 33, 384, 192), (1, 2, 2, 1)),
        (point("int4", 16, 37, 768, 256), (2, 1, 4, 2)),  # a warp has nothing to do
        (point("int8", 9, 37, 192), (2, 1, 2, 1)),
        (point("int8", 5, 70, 640), (2, 2, 3, 2)),
        (point("int4", 1, 37, 1024), (2, 3, 2)),  # of one row: the warps share k unevenly
        (point("int4", 1, 16, 384, 64), (1, 4, 1)),  # a warp has nothing to do
        (point("int8", 1, 70, 704), (2, 2, 1)),
        (point("int8", 1, 33, 1280), (1, 3, 2)),
    ],
)
def test_every_weight_meets_its_element_of_x(
    at: Point, shape: tuple[int, ...], tmp_path: Path
) -> None:
    inputs = drawn(at)
    check(at, inputs, built(at, shape, tmp_path)(inputs))


def built(at: Point, shape: tuple[int, ...], tmp_path: Path) -> Callable[..., torch.Tensor]:
    """Return the kernel for *shape* as a function of the inputs."""
    given = {**dict(zip(cuda.KEYS[-len(shape) :], shape, strict=True)), "BUSY": 32}
    source = for_cpu(cuda.source_of(at, given), cuda.name_of(given))
    (tmp_path / "linear.cpp").write_text(source, encoding="utf-8")
    flags = ["-O1", "-std=c++20", "-shared", "-fPIC", "-pthread", "-w"]
    command = ["g++", *flags, str(tmp_path / "linear.cpp"), "-o", str(tmp_path / "linear.so")]
    subprocess.run(command, check=True)
    run = ctypes.CDLL(str(tmp_path / "linear.so")).run
    sizes = (at.m, at.n, at.k) if cuda.name_of(given) == "linear" else (at.n, at.k)
    run.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_uint] * len(sizes)

    def call(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        y = torch.full((at.m, at.n), torch.nan, dtype=torch.bfloat16)
        tensors = (inputs["x"], inputs["weight"], inputs["scale"], y)
        run(*(tensor.data_ptr() for tensor in tensors), *sizes)
        return y

    return call


def drawn(at: Point) -> dict[str, torch.Tensor]:
    return dict(LINEAR.inputs(at, bind_make(torch.device("cpu"), 0)))


def check(at: Point, inputs: Mapping[str, torch.Tensor], y: torch.Tensor) -> None:
    compare(LINEAR, at, inputs, y, LINEAR.cost(at).flops[0].accumulate, pick)


@needs_compiler
@pytest.mark.parametrize("weights", ["int4", "int8"])
def test_one_row_of_any_magnitudes_is_right(weights: str, tmp_path: Path) -> None:
    at = point(weights, 1, 40, 1024)
    call, inputs = built(at, (1, 2, 1), tmp_path), drawn(at)
    x = inputs["x"].clone()
    for factor in (1.0, 1e30, 1e-30, 2.0**-120, 0.0):
        inputs["x"] = x * factor
        check(at, inputs, call(inputs))
    inputs["x"] = x.clone()
    inputs["x"][0, ::97] *= 3000  # which leaves the other elements few of the 30 bits
    check(at, inputs, call(inputs))
    inputs["x"] = torch.where(torch.arange(1024) % 2 == 0, -x.abs().max(), x)  # the largest digit
    check(at, inputs, call(inputs))
    for value in (torch.inf, -torch.inf, torch.nan):
        inputs["x"] = x.clone()
        inputs["x"][0, 777] = value
        assert call(inputs).isnan().all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_kernel_compiles(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings (Linux)")
    points = [
        point(w, m, 512, 1024) for w, m in (("int4", 1), ("int8", 1), ("int4", 2), ("int8", 16))
    ]
    for at in points:
        cubin = compile_source(cuda.source_of(at, cuda.shapes(at)[-1]), arch)
        assert cubin.startswith(b"\x7fELF")


def test_the_digits_of_a_long_row_have_no_room() -> None:
    def names(m: int, k: int, shared: int = cuda.SHARED) -> set[str]:
        return {cuda.name_of(shape) for shape in cuda.shapes(point("int8", m, 512, k), shared)}

    assert names(1, 32768) == {"linear", "linear_one"}
    assert names(1, 65536) == names(1, 32768, 100 * 1024) == names(2, 8192) == {"linear"}


def test_a_step_fills_groups_and_rows() -> None:
    for m in (1, 2):
        assert {cuda.step(s) for s in cuda.shapes(point("int4", m, 512, 1024))} == {64, 128}
    assert {cuda.step(s) for s in cuda.shapes(point("int4", 1, 512, 384, 64))} == {64}
    assert {cuda.step(s) for s in cuda.shapes(point("int8", 9, 512, 192))} == {64}


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (point("int4", 17, 512, 1024), "takes up to 16 rows of x"),
        (point("int4", 1, 512, 192, 64), "needs rows of W of multiples of 64 bytes"),
        (point("int4", 1, 512, 1024, 32), "groups of multiples of 64"),
        (point("fp8", 1, 512, 1024), "takes x in bf16 and weights in int4 or int8"),
    ],
)
def test_what_the_kernel_does_not_take_is_refused_in_a_sentence(at: Point, reason: str) -> None:
    hopper = replace(CPU.facts, kind="cuda", capability="9.0")
    assert cuda.cuda_supports(point("int8", 16, 512, 1024), hopper) is None
    assert reason in (cuda.cuda_supports(at, hopper) or "")
    turing = replace(hopper, capability="7.5")
    assert cuda.cuda_supports(point("int8", 1, 512, 1024), turing) == "needs compute capability 8.0"
