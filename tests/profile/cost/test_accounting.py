"""Every family's figures against counts by hand, and strangers' calls against garbage."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuperf import Bytes, Cost, Flops
from gpuperf.model.aten import Call, Tensor
from gpuperf.profile.cost.accounting import RULES, account
from gpuperf.profile.cost.attention import pairs
from gpuperf.profile.cost.pointwise import FORMULAS

Counts = tuple[int, int, int, int, int]  # matmul, elementwise, special; read, written


def t(*shape: int, dtype: str = "fp32", strides: tuple[int, ...] = ()) -> Tensor:
    return Tensor(shape, dtype, strides)


def call(name: str, *arguments: Any, outputs: tuple[Tensor, ...] = ()) -> Call:
    """Tensors, lists of them, and whatever else as a trace writes it."""
    inputs: list[tuple[Tensor, ...]] = []
    concrete = []
    for argument in arguments:
        listed = isinstance(argument, list) and argument and isinstance(argument[0], Tensor)
        single = isinstance(argument, Tensor)
        inputs.append(tuple(argument) if listed else (argument,) if single else ())
        concrete.append("" if listed or single or argument is None else str(argument))
    return Call(name if ":" in name else f"aten::{name}", tuple(inputs), tuple(concrete), outputs)


def counts(call: Call, work: bool = False, tf32: bool = False) -> Counts:
    found = account(call, tf32)
    assert found.known, call
    cost = found.work if work else found.cost
    kinds = [
        sum(f.count for f in cost.flops if f.kind == kind)
        for kind in ("matmul", "elementwise", "special")
    ]
    read, written = (sum(getattr(b, side) for b in cost.bytes) for side in ("read", "written"))
    return kinds[0], kinds[1], kinds[2], read, written


I64 = "int64"
CONV = ("[2, 2]", "[1, 1]", "[1, 1]")
SDPA = (t(2, 4, 6, 16), t(2, 2, 7, 16), t(2, 2, 7, 16))
BF = (t(2, 4, 6, 16, dtype="bf16"), t(2, 2, 7, 16, dtype="bf16"), t(2, 2, 7, 16, dtype="bf16"))
LSE = t(2, 4, 6)
P = [t(3, 4), t(5)]  # 17 parameters, 68 bytes
STEPS = [t(), t()]
PARTS = [t(3, dtype="bf16"), t(2, 2, dtype="bf16")]  # 7 elements, 14 bytes
HAND: list[tuple[Call, Counts]] = [
    # The copies of FSDP2: into this rank's place, out of the whole, and to the order of ranks.
    (
        call("fsdp::all_gather_copy_in", PARTS, t(28, dtype="bf16"), "[3, 4]", 7, 1),
        (0, 0, 0, 14, 14),
    ),
    (call("fsdp::all_gather_copy_in", PARTS, "[3, 4]", 7, 4, 1, "bf16", "cuda"), (0, 0, 0, 14, 14)),
    (
        call("fsdp::split_with_sizes_copy", t(4, 7, dtype="bf16"), "[3, 4]", 1, [t(12), t(16)]),
        (0, 0, 0, 56, 112),
    ),
    (call("fsdp::chunk_cat", PARTS, 0, 2, t(2, 4)), (0, 0, 0, 14, 32)),
    (call("fsdp::copy_", t(7), t(7, dtype="bf16")), (0, 0, 0, 14, 28)),
    # Matmuls: 2·m·n·k.
    (call("mm", t(2, 3), t(3, 5)), (60, 0, 0, 24 + 60, 40)),
    (call("mm", t(2, 3, dtype="complex64"), t(3, 5, dtype="complex64")), (240, 0, 0, 168, 80)),
    (call("addmm", t(5), t(2, 3), t(3, 5), 1, 1), (60, 10, 0, 104, 40)),
    (call("addmm", t(5), t(2, 3), t(3, 5), 0, 1), (60, 0, 0, 84, 40)),
    (call("addmm", t(5), t(2, 3), t(3, 5), 0.5, 2), (60, 30, 0, 104, 40)),
    (call("_addmm_activation", t(5), t(2, 3), t(3, 5), 1, 1, False), (60, 20, 0, 104, 40)),
    (call("bmm", t(4, 2, 3), t(4, 3, 5)), (240, 0, 0, 336, 160)),
    (call("baddbmm", t(4, 2, 5), t(4, 2, 3), t(4, 3, 5), 1, 1), (240, 40, 0, 496, 160)),
    (call("addbmm", t(2, 5), t(4, 2, 3), t(4, 3, 5), 1, 1), (240, 10, 0, 376, 40)),
    (call("matmul", t(7, 2, 3), t(3)), (84, 0, 0, 180, 56)),
    (call("linear", t(7, 2, 3), t(5, 3), t(5)), (420, 70, 0, 168 + 60 + 20, 280)),
    (
        call("linear_backward", t(7, 3), t(7, 5), t(5, 3), "[False, True, True]"),
        (210, 35, 0, 140 + 84, 60 + 20),
    ),
    (call("einsum", "bij,bjk->bik", [t(4, 2, 3), t(4, 3, 5)]), (240, 0, 0, 336, 160)),
    (call("mv", t(2, 3), t(3)), (12, 0, 0, 36, 8)),
    (call("dot", t(3), t(3)), (6, 0, 0, 24, 4)),
    (call("_int_mm", t(2, 3, dtype="int8"), t(3, 5, dtype="int8")), (60, 0, 0, 21, 40)),
    (
        call(
            "_scaled_mm",
            t(2, 3, dtype="fp8"),
            t(3, 5, dtype="fp8"),
            t(),
            t(),
            None,
            None,
            "15",
            False,
        ),
        (60, 0, 0, 21 + 8, 20),
    ),
    # 7 rows shared out among 4 matrices (3, 5): each row meets one.
    (
        call(
            "_grouped_mm",
            t(7, 3, dtype="bf16"),
            t(4, 3, 5, dtype="bf16"),
            t(4, dtype="int32"),
            None,
            None,
        ),
        (210, 0, 0, 42 + 120 + 16, 70),
    ),
    (call("outer", t(3), t(4)), (0, 12, 0, 28, 48)),
    # 6 tokens by w_ih (20, 4) and w_hh (20, 5): 2·6·180.
    (
        call(
            "_cudnn_rnn",
            t(3, 2, 4),
            [t(20, 4), t(20, 5), t(20), t(20)],
            4,
            t(220),
            t(1, 2, 5),
            None,
            2,
            5,
            0,
            1,
            False,
            0.0,
            True,
            False,
            "[]",
            None,
        ),
        (2160, 0, 0, 96 + 880 + 40, 0),
    ),
    # Convolutions: 2·batch·places·elements of the weight. (9 + 2 − 2 − 1)/2 + 1 = 5 places an axis.
    (
        call("convolution", t(2, 8, 9, 9), t(4, 4, 3, 3), t(4), *CONV, False, "[0, 0]", 2),
        (2 * 2 * 25 * 144, 200, 0, 5184 + 576 + 16, 800),
    ),
    # Transposed, places are the input's; (9 − 1)·2 − 2 + 2 + 1 + 1 = 18 in the result.
    (
        call("convolution", t(2, 8, 9, 9), t(8, 3, 3, 3), None, *CONV, True, "[1, 1]", 2),
        (2 * 2 * 81 * 216, 0, 0, 5184 + 864, 2 * 6 * 324 * 4),
    ),
    (
        call(
            "cudnn_convolution",
            t(2, 8, 9, 9),
            t(4, 4, 3, 3),
            "[1, 1]",
            "[2, 2]",
            "[1, 1]",
            2,
            False,
            False,
            True,
        ),
        (14400, 0, 0, 5760, 800),
    ),
    (
        call(
            "mkldnn_convolution",
            t(2, 8, 9, 9),
            t(4, 4, 3, 3),
            t(4),
            "[1, 1]",
            "[2, 2]",
            "[1, 1]",
            2,
        ),
        (14400, 200, 0, 5776, 800),
    ),
    (
        call("conv1d", t(2, 8, 9), t(4, 8, 3), None, "[1]", "same", "[1]", 1),
        (2 * 2 * 9 * 96, 0, 0, 960, 288),
    ),
    (
        call(
            "convolution_backward",
            t(2, 4, 5, 5),
            t(2, 8, 9, 9),
            t(4, 4, 3, 3),
            "[4]",
            *CONV,
            False,
            "[0, 0]",
            2,
            "[True, True, True]",
        ),
        (28800, 200, 0, 800 + 576 + 5184, 5184 + 576 + 16),
    ),
    (
        call(
            "convolution_backward",
            t(2, 4, 5, 5),
            t(2, 8, 9, 9),
            t(4, 4, 3, 3),
            "[4]",
            *CONV,
            False,
            "[0, 0]",
            2,
            "[False, True, False]",
        ),
        (14400, 0, 0, 800 + 5184, 576),
    ),
    # Attention of 6 queries and 7 keys, 2·4 heads, d 16: 2·8·S·32. Upper left S = 1+…+6 = 21,
    # lower right 2+…+7 = 27. q 3072 bytes, k and v 1792 each by their own 2 heads.
    (
        call("scaled_dot_product_attention", *SDPA, None, 0.0, False, None, True),
        (512 * 42, 0, 0, 3072 + 3584, 3072),
    ),
    (
        call("scaled_dot_product_attention", *SDPA, None, 0.0, True, None, True),
        (512 * 21, 0, 0, 6656, 3072),
    ),
    (
        call("_scaled_dot_product_flash_attention", *BF, 0.0, True, False, None),
        (512 * 27, 0, 0, 3328, 1536 + 192),
    ),
    (
        call("_scaled_dot_product_flash_attention_for_cpu", *SDPA, 0.0, True, None, None),
        (512 * 21, 0, 0, 6656, 3072 + 192),
    ),
    (
        call("_scaled_dot_product_efficient_attention", *BF, None, False, 0.0, True, None),
        (512 * 21, 0, 0, 3328, 1536),
    ),
    # Its log-sum-exp has 32 rows for 6.
    (
        call("_scaled_dot_product_efficient_attention", *BF, None, True, 0.0, True, None),
        (512 * 21, 0, 0, 3328, 1536 + 1024),
    ),
    (
        call("_scaled_dot_product_cudnn_attention", *BF, None, True, 0.0, True, False, None),
        (512 * 21, 0, 0, 3328, 1536 + 192),
    ),
    (
        call(
            "_scaled_dot_product_flash_attention_backward",
            BF[0],
            *BF,
            BF[0],
            LSE,
            None,
            None,
            6,
            7,
            0.0,
            True,
            None,
            None,
            None,
        ),
        (1024 * 27, 0, 0, 1536 * 3 + 1792 + 192, 3328),
    ),
    (
        call(
            "_scaled_dot_product_efficient_attention_backward",
            BF[0],
            *BF,
            t(1, 1, 6, 7),
            BF[0],
            LSE,
            None,
            None,
            0.0,
            "[True, True, True, True]",
            False,
            None,
        ),
        (1024 * 42, 0, 0, 1536 * 3 + 1792 + 192 + 168, 3328 + 168),
    ),
    # (b, n, h, d), a window of 2 keys before its own: rows see 2 (keys 0, 1), 3, 3, 3, 3, 3.
    (
        call(
            "_flash_attention_forward",
            t(2, 6, 4, 16),
            t(2, 7, 2, 16),
            t(2, 7, 2, 16),
            None,
            None,
            6,
            7,
            0.0,
            True,
            False,
            None,
            2,
            0,
            None,
            None,
            None,
        ),
        (512 * 17, 0, 0, 6656, 3264),
    ),
    (
        call(
            "_efficient_attention_forward",
            t(2, 6, 4, 16),
            t(2, 7, 2, 16),
            t(2, 7, 2, 16),
            None,
            None,
            None,
            None,
            None,
            0.0,
            2,
            False,
            None,
            None,
            None,
        ),
        (512 * 27, 0, 0, 6656, 3072),
    ),
    # Three sequences of 4 tokens, one after another.
    (
        call(
            "_flash_attention_forward",
            t(12, 4, 16),
            t(12, 2, 16),
            t(12, 2, 16),
            t(4, dtype="int32"),
            t(4, dtype="int32"),
            4,
            4,
            0.0,
            True,
            False,
            None,
            None,
            None,
            None,
            None,
            None,
        ),
        (2 * 12 * 10 * 32, 0, 0, 3072 + 3072, 3072 + 192),
    ),
    # Norms: an element 7 forward, 13 backward; RMS 4 and 9.
    (call("native_layer_norm", t(4, 8), "[8]", t(8), t(8), 1e-5), (0, 224, 0, 192, 128 + 32)),
    (
        call("native_layer_norm", t(4, 8, dtype="bf16"), "[8]", None, None, 1e-5),
        (0, 160, 0, 64, 64 + 32),
    ),
    (
        call(
            "native_layer_norm_backward",
            t(4, 8),
            t(4, 8),
            "[8]",
            t(4, 1),
            t(4, 1),
            t(8),
            t(8),
            "[True, True, True]",
        ),
        (0, 416, 0, 256 + 32 + 32, 128 + 64),
    ),
    (call("_fused_rms_norm", t(4, 8), "[8]", t(8), 1e-5), (0, 128, 0, 160, 144)),
    (
        call("_fused_rms_norm_backward", t(4, 8), t(4, 8), "[8]", t(4, 1), t(8), "[True, True]"),
        (0, 288, 0, 304, 160),
    ),
    (
        call("native_group_norm", t(4, 8, 3), t(8), t(8), 4, 8, 3, 2, 1e-5),
        (0, 672, 0, 448, 384 + 64),
    ),
    (
        call("cudnn_batch_norm", t(4, 8, 3), t(8), t(8), t(8), t(8), True, 0.1, 1e-5),
        (0, 672, 0, 384 + 128, 384 + 64 + 64),
    ),
    (
        call("cudnn_batch_norm", t(4, 8, 3), t(8), t(8), t(8), t(8), False, 0.1, 1e-5),
        (0, 384, 0, 512, 384),
    ),
    (
        call(
            "cudnn_batch_norm_backward",
            t(4, 8, 3),
            t(4, 8, 3),
            t(8),
            t(8),
            t(8),
            t(8),
            t(8),
            1e-5,
            t(0, dtype="uint8"),
        ),
        (0, 96 * 13, 0, 768 + 96, 384 + 64),
    ),
    # Softmax: 4 and an exponential.
    (call("_softmax", t(4, 8), -1, False), (0, 128, 32, 128, 128)),
    (call("_softmax", t(4, 8, dtype="fp16"), -1, True), (0, 128, 32, 64, 128)),
    (call("_log_softmax_backward_data", t(4, 8), t(4, 8), 1, 6), (0, 96, 32, 256, 128)),
    (call("nll_loss_forward", t(4, 8), t(4, dtype=I64), None, 1, -100), (0, 4, 0, 16 + 32, 8)),
    (
        call("nll_loss_backward", t(), t(4, 8), t(4, dtype=I64), None, 1, -100, t()),
        (0, 4, 0, 4 + 32 + 4, 128),
    ),
    # Element by element.
    (call("add", t(4, 8), t(8), 1), (0, 32, 0, 160, 128)),
    (call("add", t(4, 8), t(8), 2), (0, 64, 0, 160, 128)),
    (call("add_", t(4, 8), t(8), 1), (0, 32, 0, 160, 128)),
    (call("add", t(4, 8), t(4, 8), 1, t(4, 8)), (0, 32, 0, 256, 128)),  # out=
    (call("add", t(4, dtype=I64), t(4, dtype=I64), 1), (0, 0, 0, 64, 32)),
    (call("mul", t(4, dtype="bf16"), t(4)), (0, 4, 0, 24, 16)),
    (call("mul", t(4), t(dtype="fp64")), (0, 4, 0, 24, 16)),
    (call("div", t(4, dtype=I64), t(4, dtype=I64)), (0, 4, 0, 64, 16)),
    (call("gt", t(4, 8), 0), (0, 32, 0, 128, 32)),
    (call("where", t(8, dtype="bool"), t(4, 8), 0.0), (0, 0, 0, 136, 128)),
    (call("pow", t(4), 2), (0, 4, 0, 16, 16)),
    (call("pow", t(4), 0.3), (0, 0, 4, 16, 16)),
    (call("rsqrt", t(4)), (0, 0, 4, 16, 16)),
    (call("relu_", t(4)), (0, 4, 0, 16, 16)),
    (call("gelu", t(4), "none"), (0, 16, 4, 16, 16)),
    (call("gelu", t(4), "tanh"), (0, 32, 4, 16, 16)),
    (call("silu_backward", t(4), t(4)), (0, 32, 4, 32, 16)),
    (call("native_dropout", t(4), 0.5, True), (0, 12, 0, 16, 20)),
    (call("clamp", t(4), 0, None), (0, 4, 0, 16, 16)),
    (call("mul", t(4, dtype="complex64"), t(4, dtype="complex64")), (0, 24, 0, 64, 32)),
    # Copies.
    (call("_to_copy", t(4), 15, None, None, None, False, None), (0, 0, 0, 16, 8)),
    (call("copy_", t(4, 8), t(8), False), (0, 0, 0, 32, 128)),
    (call("cat", [t(4, 8), t(2, 8)], 0), (0, 0, 0, 192, 192)),
    (call("clone", t(4, 8, strides=(0, 1)), None), (0, 0, 0, 32, 128)),  # expanded
    (call("split", t(4, 8), 2, 0), (0, 0, 0, 0, 0)),
    (call("view", t(4, 8), "[32]"), (0, 0, 0, 0, 0)),
    (call("fill_", t(4, 8), 1.0), (0, 0, 0, 0, 128)),
    (call("zeros", "[3, 4]", 5, 0, None, None), (0, 0, 0, 0, 24)),
    (call("arange", 10, None, None, None, False), (0, 0, 0, 0, 80)),
    (call("arange", 0, 1, 0.1, None, None, None, False), (0, 0, 0, 0, 40)),
    (call("randn", "[3]", None, None, None, None), (0, 0, 0, 0, 12)),
    # Reductions.
    (call("sum", t(4, 8), None), (0, 32, 0, 128, 4)),
    (call("sum", t(4, 8), "[1]", True, None), (0, 32, 0, 128, 16)),
    (call("amax", t(4, 8), "[]", False), (0, 32, 0, 128, 4)),
    (call("argmax", t(4, 8), 1, False), (0, 32, 0, 128, 32)),
    (call("var", t(4, 8), "[0]", 1, False), (0, 128, 0, 128, 32)),
    (call("cumsum", t(4, dtype="int32"), 0, None), (0, 0, 0, 16, 32)),
    (call("topk", t(4, 8), 3, 1, True, True), (0, 0, 0, 128, 48 + 96)),
    (
        call(
            "max_pool2d_with_indices", t(2, 3, 9, 9), "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", False
        ),
        (0, 150 * 9, 0, 1944, 600 + 1200),
    ),
    # Windows of 9 to 4: 3, 4, 4, 3 elements an axis.
    (call("_adaptive_avg_pool2d", t(2, 3, 9, 9), "[4, 4]"), (0, 6 * 144, 0, 1944, 384)),
    (
        call("upsample_bilinear2d", t(1, 1, 3, 3), "[6, 6]", False, None, None),
        (0, 36 * 7, 0, 36, 144),
    ),
    # Where indices point.
    (call("embedding", t(10, 4), t(2, 3, dtype=I64), -1, False, False), (0, 0, 0, 96 + 48, 96)),
    (call("embedding", t(2, 4), t(9, dtype=I64), -1, False, False), (0, 0, 0, 32 + 72, 144)),
    (
        call("embedding_dense_backward", t(6, 4), t(6, dtype=I64), 10, -1, False),
        (0, 24, 0, 96 + 48, 160),
    ),
    (call("gather", t(4, 8), 1, t(4, 2, dtype=I64), False), (0, 0, 0, 32 + 64, 32)),
    (call("index_select", t(4, 8), 1, t(3, dtype=I64)), (0, 0, 0, 48 + 24, 48)),
    (call("index_put_", t(4, 8), [t(2, dtype=I64)], t(2, 8), True), (0, 16, 0, 64 + 16 + 64, 64)),
    (call("scatter_add_", t(4, 8), 1, t(4, 2, dtype=I64), t(4, 2)), (0, 8, 0, 64 + 32 + 32, 32)),
    (call("scatter", t(4, 8), 1, t(4, 2, dtype=I64), t(4, 2)), (0, 0, 0, 96 + 64 + 32, 128)),
    # Optimisers: 17 parameters.
    (
        call(
            "_fused_adam_",
            P,
            P,
            P,
            P,
            [],
            STEPS,
            1e-3,
            0.9,
            0.999,
            0.0,
            1e-8,
            False,
            False,
            None,
            None,
        ),
        (0, 17 * 12, 17, 4 * 68 + 8, 3 * 68),
    ),
    (
        call(
            "_fused_adamw_",
            P,
            P,
            P,
            P,
            P,
            STEPS,
            1e-3,
            0.9,
            0.999,
            0.01,
            1e-8,
            True,
            False,
            t(),
            t(),
        ),
        (0, 17 * 15, 17, 5 * 68 + 8, 4 * 68 + 68),
    ),
    (
        call("_fused_sgd_", P, P, P, 0.1, 0.9, 0.1, 0.0, False, False, False, None, None),
        (0, 17 * 7, 0, 3 * 68, 2 * 68),
    ),
    (call("_foreach_add_", P, P, 1), (0, 17, 0, 136, 68)),
    (call("_foreach_sqrt", P), (0, 0, 17, 68, 68)),
    (call("_foreach_norm", P, 2, None), (0, 34, 0, 68, 8)),
    (call("_foreach_zero_", P), (0, 0, 0, 0, 68)),
]


@pytest.mark.parametrize("seen, expected", HAND, ids=lambda v: getattr(v, "name", ""))
def test_figures_are_those_counted_by_hand(seen: Call, expected: Counts) -> None:
    assert counts(seen) == expected


def test_a_fused_backward_does_five_matmuls_and_the_model_needs_four() -> None:
    q, k, v = t(1, 2, 8, 16), t(1, 2, 8, 16), t(1, 2, 8, 32)
    back = call(
        "_scaled_dot_product_flash_attention_backward",
        v,
        q,
        k,
        v,
        v,
        t(1, 2, 8),
        None,
        None,
        8,
        8,
        0.0,
        False,
        None,
        None,
        None,
    )
    assert counts(back)[0] == 2 * 2 * 64 * (2 * 16 + 2 * 32)
    assert counts(back, work=True)[0] == 2 * 2 * 64 * (3 * 16 + 2 * 32)


def test_attention_piece_by_piece_multiplies_hidden_pairs_and_moves_the_scores() -> None:
    q = t(1, 1, 8, 16)
    math_ = call("_scaled_dot_product_attention_math", q, q, q, None, 0.0, True, None, None, False)
    scores, tensor = 8 * 8 * 4, 8 * 16 * 4
    assert counts(math_) == (64 * 36, 0, 0, 3 * tensor, tensor + scores)
    assert counts(math_, work=True) == (64 * 64, 0, 0, 3 * tensor + 3 * scores, tensor + 3 * scores)


@given(
    st.integers(0, 9), st.integers(0, 9), st.integers(-9, 9), st.integers(-1, 9), st.integers(-1, 9)
)
def test_pairs_are_those_that_a_mask_shows(
    n_q: int, n_k: int, offset: int, left: int, right: int
) -> None:
    def shown(i: int, j: int) -> bool:
        return (left < 0 or j >= i + offset - left) and (right < 0 or j <= i + offset + right)

    expected = sum(shown(i, j) for i in range(n_q) for j in range(n_k))
    assert pairs(n_q, n_k, offset, left, right) == expected


def test_dtypes_and_accumulation_are_those_of_the_matmul() -> None:
    def flops(dtype: str, tf32: bool = False) -> tuple[str, str]:
        (only,) = account(call("mm", t(2, 2, dtype=dtype), t(2, 2, dtype=dtype)), tf32).cost.flops
        return only.dtype, only.accumulate

    assert flops("bf16") == ("bf16", "fp32") and flops("fp16", True) == ("fp16", "fp32")
    assert flops("fp32") == ("fp32", "fp32") and flops("fp32", True) == ("tf32", "fp32")
    assert flops("fp64", True) == ("fp64", "fp64") and flops("int8") == ("int8", "int32")
    plain = account(call("add", t(4), t(4)), tf32=True).cost.flops
    assert plain == (Flops(4, "elementwise", "fp32"),)


def test_the_same_elements_are_read_once_and_other_parts_of_a_storage_are_others() -> None:
    whole = Tensor((4, 8), "fp32", (8, 1), storage=7, offset=0)
    turned = Tensor((8, 4), "fp32", (1, 8), storage=7, offset=0)
    assert counts(call("mul", whole, whole))[3] == 128
    assert counts(call("mm", whole, turned))[3] == 128
    q, k = (Tensor((4, 8), "fp32", (16, 1), storage=7, offset=at) for at in (0, 8))
    assert counts(call("mul", q, k))[3] == 256
    unsure = Tensor((4, 8), "fp32", (16, 1), storage=7)
    assert counts(call("mul", unsure, unsure))[3] == 256


def test_what_may_be_a_view_is_one_where_its_result_lies_in_its_inputs_storage() -> None:
    x = Tensor((4, 8), "fp32", storage=7)
    alias, copy = (Tensor((32,), "fp32", storage=at) for at in (7, 8))
    assert counts(call("reshape", x, "[32]", outputs=(alias,))) == (0, 0, 0, 0, 0)
    assert counts(call("reshape", x, "[32]", outputs=(copy,))) == (0, 0, 0, 128, 128)
    assert account(call("reshape", x, "[32]", outputs=(copy,))).kind == "copy"
    assert counts(call("reshape", x, "[32]")) == (0, 0, 0, 0, 0)


def test_the_result_of_an_operator_in_place_is_not_counted_again() -> None:
    x = Tensor((4, 8), "fp32", storage=7, offset=0)
    assert counts(call("add_", x, t(4, 8), 1, outputs=(x,))) == (0, 32, 0, 256, 128)


@pytest.mark.parametrize(
    "seen",
    [
        # Nobody recorded whether it is causal, or in which order more operands are multiplied.
        Call("aten::scaled_dot_product_attention", tuple((q,) for q in SDPA) + ((),) * 5),
        call("einsum", "ij,jk,kl->il", [t(2, 2), t(2, 2), t(2, 2)]),
        # How long each of three sequences is: 12 tokens, the longest 5.
        call(
            "_flash_attention_forward",
            t(12, 4, 16),
            t(12, 4, 16),
            t(12, 4, 16),
            t(4, dtype="int32"),
            t(4, dtype="int32"),
            5,
            5,
            0.0,
            False,
            False,
            None,
            None,
            None,
        ),
        call("convolution", t(2, 8, 9, 9), t(4, 4, 3, 3), None, None, None, None, None, None, None),
        call("flex_attention", *SDPA),
        call("mm", t(2, 3), t(4, 5)),
        call("mm", t(2, 3)),
        call("add", t(2, dtype="float4"), t(2)),
        call("convolution", t(3), t(3), None, *CONV, False, "[0, 0]", "x"),
        call("mm", t(*(2**62,) * 3), t(2, 2)),
        call("relu", t(*(2**62,) * 10**5)),
        Call("mylib::fused_mlp", ((t(2, 2),),)),
    ],
    ids=lambda c: c.name,
)
def test_what_a_call_does_not_say_is_not_known(seen: Call) -> None:
    assert not account(seen).known and not account(seen).cost.flops


def test_an_unknown_operator_moves_its_tensors_and_no_view_of_them() -> None:
    x, y, view = (Tensor((4,), "fp32", storage=at) for at in (1, 2, 1))
    found = account(Call("mylib::op", ((x,),), outputs=(y, view)))
    assert found.cost == Cost((), (Bytes(16, 16),)) and found.kind == "unknown"


def test_reduced_dimensions_that_nobody_recorded_leave_the_result_uncounted() -> None:
    unsaid = Call("aten::sum", ((t(4, 8),), (), (), ()))
    assert counts(unsaid) == (0, 32, 0, 128, 0)


def test_collectives_move_through_the_link() -> None:
    x, whole = t(4), t(16)
    base = account(Call("c10d::_allgather_base_", ((whole,), (x,))))
    assert base.kind == "communication" and base.cost.bytes == (Bytes(16, 64, "link"),)
    reduced = account(Call("c10d::allreduce_", ((x, x),)))
    assert reduced.cost == Cost((), (Bytes(32, 32, "link"),)) and reduced.known
    name = "_c10d_functional::reduce_scatter_tensor"
    functional = account(Call(name, ((whole,),), ("", "sum", "4", "0")))
    assert functional.cost.bytes == (Bytes(64, 16, "link"),)
    assert account(Call("_c10d_functional::wait_tensor", ((x,),))).cost == Cost()


SIZES = st.one_of(st.integers(0, 9), st.sampled_from((2**31, 2**62)))
ANY_TENSOR = st.builds(
    Tensor,
    st.lists(SIZES, max_size=6).map(tuple),
    st.sampled_from(("fp32", "bf16", "int64", "bool", "complex64", "", "float4", "int32")),
    st.lists(st.integers(-3, 9), max_size=6).map(tuple),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(0, 3)),
)
TEXT = st.one_of(
    st.sampled_from(
        (
            "",
            "1",
            "0",
            "-1",
            "True",
            "False",
            "[1, 1]",
            "[]",
            "[0]",
            "(2, 2)",
            "6",
            "15",
            "0.5",
            "nan",
            "inf",
            "-inf",
            "1e999",
            "[-3, 9999999999999999999]",
            "None",
            "9" * 5000,
            "[" * 3000,
            "torch.float16",
            "same",
            "[True, False]",
            "ij,jk->ik",
            "->",
            "[" + "1" * 1990,
        )
    ),
    st.text(max_size=8),
)
NAMES = st.one_of(
    st.builds(
        "aten::{}{}{}".format,
        st.sampled_from(sorted(RULES)),
        st.sampled_from(("", "_")),
        st.sampled_from(("", ".out", ".x.y")),
    ),
    st.sampled_from(
        (
            "c10d::allreduce_",
            "c10d::_reduce_scatter_base_",
            "nccl:all_reduce",
            "_c10d_functional::all_gather_into_tensor",
            "profiler::x",
            "",
            "::",
            "aten::",
            "_c10d_functional::reduce_scatter_tensor",
        )
    ),
    st.text(max_size=8),
)
TENSORS = st.lists(ANY_TENSOR, max_size=3).map(tuple)
CALLS = st.builds(
    Call,
    NAMES,
    st.lists(TENSORS, max_size=12).map(tuple),
    st.lists(TEXT, max_size=18).map(tuple),
    TENSORS,
)


@settings(max_examples=300, deadline=None)
@given(CALLS, st.booleans())
def test_no_call_whatsoever_raises(seen: Call, tf32: bool) -> None:
    found = account(seen, tf32)
    assert found.known or not found.cost.flops


PLAIN = st.builds(
    Tensor,
    st.lists(st.sampled_from((1, 3)), max_size=4).map(tuple),
    st.sampled_from(("fp32", "bf16", "int64", "bool")),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(FORMULAS)), st.lists(PLAIN, min_size=1, max_size=6), TENSORS)
def test_what_is_elementwise_moves_at_least_its_results(
    name: str, given_: list[Tensor], outputs: tuple[Tensor, ...]
) -> None:
    results = tuple(x for x in outputs if x.dtype in ("fp32", "bf16") and x.size < 2**40)
    found = account(call(name, *given_, outputs=results))
    least = sum({(x.place or i): x.bytes for i, x in enumerate(results)}.values())
    assert found.cost.dram_bytes >= least
    assert all(flops.count >= 0 and math.isfinite(flops.count) for flops in found.cost.flops)
