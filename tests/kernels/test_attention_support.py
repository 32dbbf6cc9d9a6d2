"""What each implementation of attention takes, what it refuses, and how its kernels are known."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from attention_points import BY_NAME, CPU, GPU, inputs_of, of
from gpuperf.kernels import _attention_support as support
from gpuperf.kernels import attention
from gpuperf.kernels.attention import ATTENTION

from gpuperf.errors import CannotMeasure, Unsupported
from gpuperf.measure.inputs import ByteCounter
from gpuperf.model.contract import DeviceFacts

OLD = DeviceFacts("cuda", 0, "GPU", 72, 0, 0, capability="7.5")
ROCM = DeviceFacts("rocm", 0, "GPU", 304, 0, 0, capability="gfx942")
BLIND = {"causal": "yes", "kv": 8}
NAN = "gives NaN for a query without a key"


@pytest.mark.parametrize(
    ("name", "given", "device", "reason"),
    [
        ("eager", BLIND, CPU, None),
        ("sdpa_math", BLIND, CPU, NAN),
        ("sdpa_math", {**BLIND, "align": "upper-left"}, CPU, None),
        ("sdpa_flash", {"dtype": "bf16"}, GPU, None),
        ("sdpa_flash", {"dtype": "fp32"}, GPU, "computes in bf16 and fp16"),
        ("sdpa_flash", {"dtype": "bf16"}, CPU, "needs an NVIDIA GPU"),
        ("sdpa_flash", {"dtype": "bf16", **BLIND}, GPU, NAN),
        ("sdpa_efficient", {}, GPU, None),
        ("sdpa_efficient", {}, ROCM, "needs an NVIDIA GPU"),
        ("sdpa_efficient", {"gqa": 2}, GPU, "takes no keys that query heads share"),
        ("sdpa_efficient", BLIND, GPU, NAN),
        ("sdpa_cudnn", {"dtype": "fp16", "gqa": 2}, GPU, None),
        (
            "sdpa_cudnn",
            {"dtype": "fp16", "causal": "yes", "kv": 12},
            GPU,
            "has no causal mask that is aligned lower right",
        ),
        ("flex", {}, CPU, "needs a GPU"),
        ("flex", {"mask": "boolean"}, GPU, "takes no mask tensor"),
        ("flex", {"dropout": "0.1"}, GPU, "has no dropout"),
        ("sdpa_flash", {"dtype": "bf16", "dropout": "0.1"}, GPU, None),
        ("sdpa_flash", {"dtype": "bf16", "mask": "additive"}, GPU, "takes no mask tensor"),
        ("sdpa_efficient", {"mask": "additive", "dropout": "0.5"}, GPU, None),
        ("sdpa_cudnn", {"dtype": "bf16", "mask": "boolean", "dropout": "0.1"}, GPU, None),
        ("sdpa_math", {"mask": "boolean", "dropout": "0.1"}, CPU, None),
        (
            "sdpa_math",
            {"mask": "additive", "causal": "yes"},
            CPU,
            "takes a mask tensor or a causal mask, not both",
        ),
        ("eager", {"mask": "additive", "causal": "yes", "dropout": "0.1"}, CPU, None),
        ("flex", {"window": 3, "softcap": 50, "documents": 2}, GPU, None),
        ("triton_flash", {"window": 3, "softcap": 50, "documents": 2}, GPU, None),
        ("sdpa_math", {"softcap": 50}, CPU, "has no cap of scores"),
        ("sdpa_math", {"window": 3}, CPU, None),
        ("sdpa_math", {"window": 3, "seq": 20, "kv": 9, "align": "upper-left"}, CPU, NAN),
        (
            "sdpa_math",
            {"window": 3, "mask": "additive"},
            CPU,
            "takes a mask tensor or a causal mask, not both",
        ),
        ("sdpa_flash", {"dtype": "bf16", "documents": 2}, GPU, "has neither windows nor documents"),
        ("sdpa_cudnn", {"dtype": "bf16", "window": 3, "kv": 12, "causal": "yes"}, GPU, None),
        ("triton_flash", {"mask": "additive"}, GPU, "takes no mask tensor"),
        ("triton_flash", {"dropout": "0.1"}, GPU, "has no dropout"),
        ("triton_flash", {"head_dim": 24}, GPU, "head-dim must be one of 16, 32, 64, 128, 256"),
        ("triton_flash", {"head_dim": 256, "mode": "bwd"}, GPU, None),
        (
            "gluon_flash",
            {"head_dim": 256, "mode": "bwd", "dtype": "bf16"},
            GPU,
            "head-dim 256 has no backward",
        ),
        (
            "triton_flash",
            {"batch": 2**12, "heads": 16},
            GPU,
            "takes batch · heads of at most 65,535",
        ),
        ("triton_flash", {"dtype": "bf16"}, CPU, "Triton's interpreter does not multiply bf16"),
    ],
)
def test_what_is_not_taken_is_said(
    name: str, given: dict[str, Any], device: DeviceFacts, reason: str | None
) -> None:
    assert BY_NAME[name].supports(of(**given), device) == reason


def test_of_a_package_that_is_installed_the_rest_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    supports, newer = BY_NAME["flash_attn_2"].supports, BY_NAME["flash_attn_3"].supports
    point = of(dtype="bf16")
    monkeypatch.setattr(support.importlib.util, "find_spec", lambda name: None)
    assert supports(point, GPU) == "the package flash_attn is not installed"
    monkeypatch.setattr(support.importlib.util, "find_spec", lambda name: name)
    assert supports(point, GPU) is None
    assert supports(of(dtype="bf16", **BLIND), GPU) is None  # it gives 0
    assert supports(point, OLD) == "needs compute capability 8.0"
    assert newer(point, OLD) == "needs compute capability 9.0"
    assert supports(point, ROCM) == "needs an NVIDIA GPU"
    assert supports(of(dtype="bf16", mask="boolean"), GPU) == "takes no mask tensor"
    assert supports(of(dtype="bf16", dropout="0.1"), GPU) is None
    assert newer(of(dtype="bf16", dropout="0.1"), GPU) == "has no dropout"
    documents = of(dtype="bf16", documents=3)
    assert supports(documents, GPU) == "takes documents by another function"
    assert supports(of(dtype="bf16", window=3, softcap=50), GPU) is None
    upper = of(dtype="bf16", causal="yes", kv=12, align="upper-left")
    assert supports(upper, GPU) == "aligns a causal mask lower right"
    assert supports(of(dtype="bf16", causal="yes", align="upper-left"), GPU) is None


def test_heads_that_a_group_does_not_divide_are_refused_with_a_hint() -> None:
    with pytest.raises(CannotMeasure, match="6 heads cannot be shared by 4 at a time") as refused:
        ATTENTION.inputs(of(heads=6, gqa=4), ByteCounter())
    assert refused.value.hint == "--gqa has to divide --heads"


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"documents": 3, "kv": 12}, "documents hold keys and queries alike", "leave --kv out"),
        ({"documents": 10}, "a sequence of 9 tokens has at most 9 documents", "give fewer"),
        (
            {"documents": 10**15, "seq": 10**16},
            "a sequence of 10,000,000,000,000,000 tokens has at most 65,536 documents",
            "give fewer",
        ),
    ],
)
def test_documents_that_do_not_fit_are_refused_with_a_hint(
    given: dict[str, Any], message: str, hint: str
) -> None:
    for use in (lambda point: ATTENTION.inputs(point, ByteCounter()), ATTENTION.cost):
        with pytest.raises(CannotMeasure, match=message) as refused:
            use(of(**given))
        assert refused.value.hint.startswith(hint)


@pytest.mark.filterwarnings("ignore::UserWarning")  # in which torch says why
def test_a_backend_that_takes_no_such_shape_is_unsupported_and_other_errors_are_not() -> None:
    point = of()
    with pytest.raises(Unsupported, match="has no cudnn_attention kernel for this shape"):
        BY_NAME["sdpa_cudnn"].build(inputs_of(point), point, {})()
    inputs = inputs_of(point) | {"v": torch.ones(2, 4, 9, 16, dtype=torch.float64)}
    with pytest.raises(RuntimeError, match="dtype"):
        BY_NAME["sdpa_math"].build(inputs, point, {})()


def test_a_failure_of_cuda_is_not_taken_for_a_missing_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "CUDA error: an illegal memory access\nCUDA kernel errors might be reported later"

    def broken(*args: Any, **given: Any) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", broken)
    point = of()
    with pytest.raises(RuntimeError, match="illegal"):
        BY_NAME["sdpa_math"].build(inputs_of(point), point, {})()


# As an H200 named them under torch 2.11.
RAN = {
    "sdpa_flash": (
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd>",
    ),
    "sdpa_cudnn": ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128",),
    "sdpa_efficient": (
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "fmha_cutlassB_bf16_aligned_128x128_k64_sm80(PyTorchMemEffAttention::Kernel)",
    ),
    "sdpa_math": ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "softmax_warp_forward"),
}


@pytest.mark.parametrize("name", ["sdpa_flash", "sdpa_cudnn", "sdpa_efficient"])
def test_a_pinned_backend_is_known_by_its_kernels_from_every_other(name: str) -> None:
    for backend, kernels in RAN.items():
        for kernel in kernels:
            assert bool(re.search(BY_NAME[name].runs, kernel)) is (backend == name), kernel
