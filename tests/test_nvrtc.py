"""CUDA C compiles without a GPU, for every chip that gpuperf may meet."""

from __future__ import annotations

import pytest

from gpuperf.errors import CannotMeasure
from gpuperf.nvrtc import compile_source, read_source

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings (Linux)")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_the_kernels_of_the_timer_compile(arch: str) -> None:
    cubin = compile_source(read_source("timing.cu"), arch)
    assert cubin.startswith(b"\x7fELF")
    for kernel in ("block", "stamp", "empty", "globaltimer_tick", "read_lines"):
        assert kernel.encode() in cubin


def test_a_fault_in_the_source_is_told_with_its_line() -> None:
    with pytest.raises(CannotMeasure, match=r"gpuperf.cu\(2\).*undefined"):
        compile_source('extern "C" __global__ void f(int* p) {\n  *p = nowhere;\n}', "sm_90")
