"""Does a kernel's name say what it says, and nothing more?"""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import MEASURED

from gpuperf.run.store import read_run
from gpuperf.tiles.names import (
    LONGEST,
    NamedTile,
    attends,
    fused_operators,
    multiplies,
    parse_name,
    reduces_splits,
)

NAMES = {
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": NamedTile(
        "nvjet", 256, 128, 64, 4, (1, 2), layout="NNT", persistent=True
    ),
    "nvjet_sm90_qqtst_128x160_128x5_2x1_v_bz_coopA_algo2_TNT": NamedTile(
        "nvjet", 128, 160, 128, 5, (2, 1), layout="TNT", persistent=True
    ),
    "nvjet_hsh_96x128_64x7_2x1_v_bz_TNN": NamedTile(
        "nvjet", 96, 128, 64, 7, (2, 1), layout="TNN", persistent=True
    ),
    "nvjet_hsh_32x64_64x16_4x1_v_bz_splitK_TNN": NamedTile(
        "nvjet", 32, 64, 64, 16, (4, 1), layout="TNN", splits=True, persistent=True
    ),
    "nvjet_sm100_tst_32x64_64x16_4x1_v_bz_splitK_bias_TNN": NamedTile(
        "nvjet", 32, 64, 64, 16, (4, 1), layout="TNN", splits=True, persistent=True
    ),
    "nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT": NamedTile(
        "nvjet", 128, 256, 64, 6, (2, 1), layout="TNT", paired=True, persistent=True
    ),
    "nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT": NamedTile(
        "nvjet", 128, 256, 128, 6, (2, 2), layout="TNT", paired=True, persistent=True
    ),
    "nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN": NamedTile(
        "nvjet", 64, 64, 128, 3, layout="TNNN", persistent=True
    ),
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16"
    "_kernel": NamedTile("xmma", 96, 128, 32, 4, layout="tn_n"),
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4"
    "_alignc4_execute_kernel__5x_cublas": NamedTile("xmma", 256, 128, 8, 3, layout="nn_n"),
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment"
    "_k_off_kernel__5x_cublas": NamedTile("xmma", 128, 256, 32, layout="nn_n", persistent=True),
    "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment"
    "_k_on_kernel__5x_cublas": NamedTile(
        "xmma", 128, 256, 32, layout="nn_n", splits=True, persistent=True
    ),
    "ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_tn": NamedTile(
        "cublas", 128, 256, 64, 3, layout="tn"
    ),
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_execute_split_k_kernel"
    "__5x_cublas": NamedTile("xmma", 64, 64, 8, 3, layout="nn_n", splits=True),
    "ampere_sgemm_128x64_nn": NamedTile("cublas", 128, 64, layout="nn"),
    "cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x256_32x3_nn_align8": NamedTile(
        "cutlass2", 128, 256, 32, 3, align=8, layout="nn"
    ),
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1>("
    "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1::Params)": NamedTile(
        "cutlass2", 256, 128, align=1, layout="nn"
    ),
    "void cutlass::Kernel2<cutlass_80_tensorop_i16832gemm_s8_128x256_128x3_tn_align16>("
    "cutlass_80_tensorop_i16832gemm_s8_128x256_128x3_tn_align16::Params)": NamedTile(
        "cutlass2", 128, 256, 128, 3, align=16, layout="tn"
    ),
    "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x64x16_1x1x1_3_tnn_align1": NamedTile(
        "cutlass3", 128, 64, 16, 3, (1, 1), align=1, layout="tnn"
    ),
    "Cijk_Ailk_Bjlk_BBS_BH_Bias_MT64x16x64_MI16x16x1_SN_LDSB0_GSU1": NamedTile(
        "tensile", 64, 16, 64
    ),
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8_SN_GSU4_K1": NamedTile(
        "tensile", 128, 128, 32, splits=True
    ),
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8_SN_GSU1_SK3_K1": NamedTile(
        "tensile", 128, 128, 32, streams=True
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_family_is_read(name: str) -> None:
    assert parse_name(name) == NAMES[name]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "matmul_tma_kernel",
        "naive_bf16",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >()",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>()",
        "gemv2T_kernel_val<int, int, __nv_bfloat16, 128, 16, 4, 4, false>",
        "nvjet_sm90_tst_256x128",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT(extra)",
        "my_nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
        "Memset (Device)",
    ],
)
def test_what_fits_no_family_is_unknown(name: str) -> None:
    assert parse_name(name) is None


def test_a_reduction_of_split_sums_is_known() -> None:
    assert reduces_splits("void cublasLt::splitKreduce_kernel<32, 16, int, float>()")
    assert not any(reduces_splits(name) for name in NAMES)


def matmul_kernels() -> set[str]:
    """Of cuBLAS, in the run files of this repository."""
    found = set()
    for path in MEASURED.glob("h200-*matmul*.jsonl.gz"):
        for record in read_run(path).records:
            if record.case.implementation == "torch":
                found |= {kernel.name for kernel in record.kernels}
    return {name for name in found if not name.startswith(("Memset", "Memcpy"))}


def test_every_matmul_of_cublas_that_was_measured_here_is_read() -> None:
    names = matmul_kernels()
    assert len(names) >= 10
    assert [name for name in names if parse_name(name) is None] == []


def operator_kernels() -> dict[str, set[str]]:
    """Kernels of the forward operators that were profiled, by operator, without compiled graphs,
    which are many operators at once."""
    found: dict[str, set[str]] = {}
    for path in MEASURED.glob("h200-profile-*.jsonl.gz"):
        for record in read_run(path).records:
            graph = "CompiledFxGraph" in record.case.op
            if record.operator is not None and not record.operator.backward and not graph:
                own = found.setdefault(record.case.op, set())
                own |= {kernel.name for kernel in record.kernels if kernel.computes}
    return found


def test_products_and_attention_are_known_by_the_names_of_their_kernels() -> None:
    by_operator = operator_kernels()
    products = ("aten::mm", "aten::addmm", "aten::bmm")
    attention = ("aten::_scaled_dot_product_cudnn_attention",)
    assert by_operator.keys() >= {*products, *attention}
    for operator, names in by_operator.items():
        assert all(multiplies(name) == (operator in products) for name in names), operator
        assert all(attends(name) == (operator in attention) for name in names), operator


@pytest.mark.parametrize(
    ("name", "product", "attention"),
    [
        *((name, True, False) for name in NAMES),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>()", True, False),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, 128, 16, 4, 4, false>()", True, False),
        ("triton_tem_fused_addmm_relu_3", True, False),
        ("triton_tem_fused__scaled_mm_view_0", True, False),
        ("triton_tem_fused_flex_attention_1", False, True),
        ("triton_poi_fused_mm_t_view_1", False, False),
        ("triton_poi_fused__scaled_dot_product_cudnn_attention_bmm_clone_4", False, False),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_14", False, False),
        ("void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>", False, True),
        (
            "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
            False,
            True,
        ),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>()", False, False),
        ("Memset (Device)", False, False),
    ],
)
def test_a_kernel_is_a_product_or_attention_or_neither(
    name: str, product: bool, attention: bool
) -> None:
    assert (multiplies(name), attends(name)) == (product, attention)


def test_a_pointwise_kernel_of_inductor_names_its_operators() -> None:
    assert fused_operators("triton_poi_fused__to_copy_add_7") == "_to_copy_add_7"
    assert fused_operators("triton_red_fused_sum_7") == ""
    assert fused_operators("_attn_fwd") == ""


@pytest.mark.parametrize("name", [name for name in NAMES if NAMES[name].family == "nvjet"])
def test_stages_of_an_nvjet_tile_fit_shared_memory(name: str) -> None:
    tile = NAMES[name]
    one_byte = "_qq" in name
    held = (tile.rows + tile.columns) * tile.k * tile.stages * (1 if one_byte else 2)
    if not tile.paired:
        assert held <= 227 * 1024


@given(st.text(max_size=300))
def test_any_text_is_read_or_unknown(name: str) -> None:
    assert parse_name(name) is None or re.search(r"\d+x\d+", name)


@given(st.sampled_from(sorted(NAMES)), st.text(min_size=1, max_size=20))
def test_a_longer_name_is_not_mistaken(name: str, more: str) -> None:
    found = parse_name(more + name)
    assert found is None or (found.rows, found.columns) == (NAMES[name].rows, NAMES[name].columns)


def test_a_hostile_name_takes_no_time() -> None:
    started = time.process_time()
    for begin, more in (
        ("sm80_xmma_gemm_", "a_"),
        ("Cijk_", "_MT1"),
        ("cutlass_80_", "gemm_1x1_"),
        ("nvjet_sm90_tst_1x1_1x1_1x1", "_a"),
        ("ampere_", "gemm_1x1"),
        ("cutlass3x_sm9_", "gemm_"),
    ):
        for length in (LONGEST - 50, 10**6):
            assert parse_name(begin + more * (length // len(more)) + "!") is None
    assert time.process_time() - started < 1
