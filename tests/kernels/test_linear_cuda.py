"""linear.cu for the CPU, with the instructions in its `asm` in C++: where does each weight go?

The code of a GPU is not run: what a GPU rounds, loads and synchronizes is tested on one.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
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
NAMES = "x, weight, scale, y, m, n, k"
ENTRY = f"""
extern "C" void run(
    const u16* x, const u8* weight, const u16* scale, u16* y, u32 m, u32 n, u32 k) {{
    run_blocks((n + ROWS - 1) / ROWS, THREADS, [=] {{ linear({NAMES}); }});
}}
"""
INSTRUCTIONS = {
    "ld.global": "if (wanted) to = *reinterpret_cast<const uint4*>(from);",
    "fma.rn.bf16x2": "result = fma_bf16x2(bytes, factor, offset);",
    "mma.sync": "mma(sums, w, x, more_x);",
    "cvt.rn.bf16.f32": "y[(u64)column * n + j] = to_bf16(total);",
}


def point(weights: str, m: int, n: int, k: int, group: int = 128) -> Point:
    return Point(m=m, n=n, k=k, group=group, weights=weights, dtype="bf16")


def for_cpu(source: str) -> str:
    """Return *source* with C++ in place of its instructions."""
    statements = re.findall(r"asm(?: volatile)?\(.*?\);\n", source, re.S)
    assert len(statements) == len(INSTRUCTIONS)
    for statement in statements:
        (name,) = [name for name in INSTRUCTIONS if name in statement]
        source = source.replace(statement, INSTRUCTIONS[name] + "\n")
    return f'#include "{HEADER}"\n{source}{ENTRY}'


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize(
    ("at", "shape"),
    [
        (point("int4", 1, 16, 128, 64), (1, 1, 1, 1)),
        (point("int4", 7, 70, 1024), (2, 2, 3, 2)),  # the warps of a block share k unevenly
        (point("int4", 8, 33, 384, 192), (1, 2, 2, 1)),
        (point("int4", 16, 37, 768, 256), (2, 1, 4, 2)),  # a warp has nothing to do
        (point("int8", 9, 37, 192), (2, 1, 2, 1)),
        (point("int8", 5, 70, 640), (2, 2, 3, 2)),
    ],
)
def test_every_weight_meets_its_element_of_x(
    at: Point, shape: tuple[int, ...], tmp_path: Path
) -> None:
    source = cuda.source_of(at, dict(zip(cuda.KEYS, shape, strict=True)))
    (tmp_path / "linear.cpp").write_text(for_cpu(source), encoding="utf-8")
    flags = ["-O1", "-std=c++20", "-shared", "-fPIC", "-pthread", "-w"]
    command = ["g++", *flags, str(tmp_path / "linear.cpp"), "-o", str(tmp_path / "linear.so")]
    subprocess.run(command, check=True)
    inputs = dict(LINEAR.inputs(at, bind_make(torch.device("cpu"), 0)))
    y = torch.full((at.m, at.n), torch.nan, dtype=torch.bfloat16)
    tensors = (inputs["x"], inputs["weight"], inputs["scale"], y)
    run = ctypes.CDLL(str(tmp_path / "linear.so")).run
    run.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_uint] * 3
    run(*(tensor.data_ptr() for tensor in tensors), at.m, at.n, at.k)
    compare(LINEAR, at, inputs, y, LINEAR.cost(at).flops[0].accumulate, pick)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_kernel_compiles(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings (Linux)")
    for at in (point("int4", 1, 512, 1024), point("int8", 16, 512, 1024)):
        cubin = compile_source(cuda.source_of(at, cuda.shapes(at)[0]), arch)
        assert cubin.startswith(b"\x7fELF")


def test_a_step_fills_groups_and_rows() -> None:
    assert {cuda.step(s) for s in cuda.shapes(point("int4", 1, 512, 1024))} == {64, 128}
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
