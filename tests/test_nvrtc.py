"""CUDA C compiles without a GPU, for every chip that gpuperf may meet."""

from __future__ import annotations

import pytest

from gpuperf import nvrtc
from gpuperf.errors import CannotMeasure
from gpuperf.measure.timers.window import OWN_KERNELS
from gpuperf.nvrtc import compile_source, read_source

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings (Linux)")


SOURCES = {
    "timing.cu": (*OWN_KERNELS, "gpuperf_empty", "gpuperf_tick"),
    "stream.cu": (
        "copy_vector",
        "write_vector",
        "triad_vector",
        "sum_rows",
        "sum_passes",
        "sum_rows_in_l1",
    ),
    "elementwise.cu": ("sincos_vector",),
    "matmul.cu": (
        "naive_fp32",
        "naive_bf16",
        "naive_fp16",
        "tiled_fp32",
        "tiled_bf16",
        "tiled_fp16",
    ),
    "arithmetic.cu": ("fma_chain", "sin_chain", "exp_chain", "sin_fast_chain", "exp_fast_chain"),
}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize(("source", "kernels"), SOURCES.items(), ids=SOURCES)
def test_our_kernels_compile(source: str, kernels: tuple[str, ...], arch: str) -> None:
    cubin = compile_source(read_source(source), arch)
    assert cubin.startswith(b"\x7fELF")
    for kernel in kernels:
        assert kernel.encode() in cubin


def test_a_fault_in_the_source_is_reported_with_its_line() -> None:
    with pytest.raises(CannotMeasure, match=r"gpuperf.cu\(2\).*undefined"):
        compile_source('extern "C" __global__ void f(int* p) {\n  *p = nowhere;\n}', "sm_90")


def test_sources_are_compiled_together_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [f'extern "C" __global__ void f{i}(int* p) {{ *p = {i}; }}' for i in range(3)]
    broken = 'extern "C" __global__ void f(int* p) { *p = nowhere; }'
    nvrtc.compile_together([*sources, broken], "sm_90")
    monkeypatch.setattr(nvrtc, "_checked", None)  # nothing is compiled any more
    assert all(compile_source(source, "sm_90").startswith(b"\x7fELF") for source in sources)
    with pytest.raises(TypeError):
        compile_source(broken, "sm_90")


def test_equal_sources_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(nvrtc, "compile_source", lambda source, arch: compiled.append(source))
    nvrtc.compile_together(["one", "another", "one"], "sm_90")
    assert sorted(compiled) == ["another", "one"]


def test_each_gpu_has_its_own_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def load(source: str, arch: str, names: tuple[str, ...]) -> dict[str, object]:
        loaded.append(source)
        return {name: object() for name in names}

    contexts = iter([1, 2, 1])
    monkeypatch.setattr(nvrtc, "load_kernels", load)
    monkeypatch.setattr(nvrtc, "_context", lambda: next(contexts))
    first, second, again = (nvrtc.kernel_in("a source of this test", "sm_90", "f") for _ in "123")
    assert first is again and first is not second and len(loaded) == 2
