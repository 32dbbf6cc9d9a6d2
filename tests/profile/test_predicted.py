"""A profile of generated text beside the theory of its model: sizes, parts, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_profile import operator, region, run_of

from gpuperf.errors import UsageError
from gpuperf.model.program import Prompts
from gpuperf.model.record import Kernel, Launch, Record, Run
from gpuperf.profile.breakdown import longest, profiles
from gpuperf.profile.modelparts import part_of, part_of_kernel, product_of
from gpuperf.profile.predicted import Part, predicted_table, sizes_of
from gpuperf.show.table import Table
from gpuperf.theory.transformer.find import builtin_model
from gpuperf.theory.transformer.measured import DecodePoint, LinearPoint, Points

DATA = Path(__file__).parents[1] / "data"
LLAMA = builtin_model("llama-3-8b")
MS = 1e-3
# Of a token: two norms and sums, RoPE, and the activation of the MLP, in bf16.
TOKEN_BYTES = 2 * 32 * (10 * 4096 + 2 * (32 + 8) * 128 + 3 * 14336)
FUSED = "8×32×1×128 bf16, 8×8×1025×128 bf16, 8×8×1025×128 bf16"
ATTENTION = operator("aten::_flash_attention", FUSED, 0.4 * MS, "attention", count=32)
PROMPT = operator("", "8×32×64×128 bf16, 8×8×64×128 bf16", MS, "attention").operator
SHAPES = operator("aten::scaled_dot_product_attention", FUSED, 0.0, "attention", count=32)
OTHER = operator("aten::mul", "8×1×4096 bf16", 0.5 * MS, "elementwise", count=64)


def products(dtype: str = "bf16", seconds: float = 0.5 * MS) -> tuple[Record, ...]:
    """The products of a decode step of Llama 3 8B with 8 sequences: queries and output alike."""
    shapes = {(4096, 4096): 64, (4096, 1024): 64, (4096, 14336): 64, (14336, 4096): 32}
    each = [
        operator("aten::mm", f"8×{k} {dtype}, {k}×{n} {dtype}", seconds, count=count)
        for (k, n), count in {**shapes, (4096, 128256): 1}.items()
    ]
    return tuple(each)


def compiled(*kernels: Kernel) -> Record:
    """A call that replays a compiled graph, of which only the kernels are known."""
    seconds = sum(kernel.time_s or 0.0 for kernel in kernels)
    whole = operator("## Call CompiledFxGraph abc ##", "", seconds, "unknown", known=False, count=2)
    return replace(whole, kernels=kernels)


def step_of(*kernels: Kernel) -> Run:
    """A decode step in one compiled call, with the shapes of its accounted, eager step."""
    return decode(*products(seconds=0.0), SHAPES, compiled(*kernels))


def kernel(name: str, seconds: float, blocks: int = 132, threads: int = 128) -> Kernel:
    return Kernel(name, 32, launch=Launch((blocks, 1, 1), (threads, 1, 1)), time_s=seconds)


def measured_kernels() -> tuple[Kernel, ...]:
    """Kernels of a compiled decode step of Llama 3 8B on an H200, after 2,111 cached tokens."""
    rows = json.loads((DATA / "h200_compiled_decode.json").read_text())
    return tuple(
        Kernel(
            row["name"],
            row["count"],
            launch=Launch(tuple(row["grid"]), tuple(row["block"])) if row["grid"] else None,
            time_s=row["time_s"],
        )
        for row in rows
    )


def decode(*operators: Record, **program: object) -> Run:
    whole = region(busy_s=4 * MS, step_s=5 * MS, **program)
    return run_of(whole, operators or (*products(), ATTENTION, OTHER), measured=False)


def table_of(run: Run) -> Table:
    return predicted_table(longest(profiles(run)), run.header, LLAMA)


def parts(run: Run) -> dict[str, Part]:
    rows = table_of(run).rows
    return {
        str(row["part"]): Part(str(row["part"]), row["predicted_s"], row["measured_s"])
        for row in rows
    }


def test_the_sizes_of_a_step_are_those_of_its_shapes() -> None:
    (profile,) = profiles(decode())
    sizes = sizes_of(profile, LLAMA)
    assert (sizes.batch, sizes.context, sizes.dtype) == (8, 1024, "bf16")


@pytest.mark.parametrize(
    ("name", "of", "shape"),
    [
        ("aten::mm", "8×4096 bf16, 4096×1024 bf16", (8, 4096, 1024)),
        ("aten::addmm", "1024 bf16, 8×4096 bf16, 4096×1024 bf16", (8, 4096, 1024)),
        ("aten::linear", "8×1×4096 bf16, 1024×4096 bf16, 1024 bf16", (8, 4096, 1024)),
        ("aten::matmul", "2×4×4096 bf16, 4096×1024 bf16", (8, 4096, 1024)),
        ("aten::linear", "8×1×4096 bf16, 4096×1024 bf16", None),
        ("aten::bmm", "8×4×64 bf16, 8×64×4 bf16", None),
    ],
)
def test_a_product_has_rows_inputs_and_outputs(
    name: str, of: str, shape: tuple[int, int, int] | None
) -> None:
    (row,) = profiles(decode(operator(name, of, MS)))[0].operators
    assert product_of(row) == shape


def test_packed_heads_are_one_query_of_each_head() -> None:
    packed = "8×8×4×128 bf16, 8×8×1025×128 bf16, 8×8×1025×128 bf16"
    attention = operator("aten::scaled_dot_product_attention", packed, MS, "attention")
    (profile,) = profiles(decode(*products(), attention))
    assert sizes_of(profile, LLAMA).context == 1024


def test_the_context_is_the_mean_over_the_lengths_of_the_accounted_steps() -> None:
    longer = operator("aten::_flash_attention", FUSED.replace("1025", "1125"), 0.0, "attention")
    (profile,) = profiles(decode(*products(), ATTENTION, replace(longer, times={}, primary="")))
    assert sizes_of(profile, LLAMA).context == pytest.approx((32 * 1025 + 12 * 1125) / 44 - 1)


def test_eager_attention_shows_its_keys_too() -> None:
    scores = operator("aten::bmm", "256×1×128 bf16, 256×128×513 bf16", 0.1 * MS)
    sums = operator("aten::bmm", "256×1×513 bf16, 256×513×128 bf16", 0.1 * MS)
    softmax = operator("aten::_softmax", "8×32×1×513 fp32", 0.1 * MS, "softmax")
    run = decode(*products(), scores, sums, softmax)
    assert sizes_of(profiles(run)[0], LLAMA).context == 512
    assert parts(run)["attention"].measured_s == pytest.approx(0.3 * MS)


def test_the_parts_of_a_step_are_predicted_as_by_theory_inference() -> None:
    """3.351 ms between tokens for 8 × 1,024 on an H200, of which the attention has 0.224, and the
    bytes of norms, sums, RoPE and activations."""
    found = parts(decode())
    others_s = 8 * TOKEN_BYTES / 4.8e12
    assert found["norms, sums and others"].predicted_s == pytest.approx(others_s)
    assert found["between tokens"].predicted_s - others_s == pytest.approx(3.351 * MS, rel=1e-3)
    assert found["attention"].predicted_s == pytest.approx(0.2239 * MS, rel=1e-3)
    weights = {"attention projections": 32 * 4096 * (4096 + 1024) * 2, "head": 4096 * 128256}
    for name, count in weights.items():
        assert found[name].predicted_s == pytest.approx(2 * count / 4.8e12, rel=1e-3)
    assert found["MLP"].predicted_s == pytest.approx(6 * 32 * 4096 * 14336 / 4.8e12, rel=1e-3)


def test_the_parts_add_up_to_the_step() -> None:
    found = parts(decode())
    whole = found.pop("between tokens")
    assert sum(part.predicted_s for part in found.values()) == pytest.approx(whole.predicted_s)
    assert whole.measured_s == pytest.approx(5 * MS)
    assert found["attention projections"].measured_s == pytest.approx(1 * MS)
    assert found["MLP"].measured_s == pytest.approx(1 * MS)
    assert found["norms, sums and others"].measured_s == pytest.approx(0.5 * MS)
    assert found["idle device"].measured_s == pytest.approx(1 * MS)


def test_prompts_of_all_sequences_are_one_pass() -> None:
    run = decode(prompts=(Prompts(8, 2048, (0.3, 0.2, 0.4)),))
    first = parts(run)["first token of 8 × 2,048"]
    assert first.measured_s == 0.3
    # Eight times the 30.22 ms of one prompt, but for the head, which is read once.
    others_s = 8 * 2048 * TOKEN_BYTES / 4.8e12
    products_s = first.predicted_s - others_s
    assert products_s == pytest.approx(8 * 30.22 * MS - 7 * 0.219 * MS, rel=1e-3)


def test_a_product_of_another_shape_is_of_no_part() -> None:
    other = operator("aten::mm", "8×4096 bf16, 4096×999 bf16", 0.1 * MS)
    (row,) = (r for r in profiles(decode(*products(), other))[0].operators if r.seconds < 0.2 * MS)
    assert part_of(row, LLAMA) == "norms, sums and others"


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (decode(OTHER), "no product of the program has the shape of a matrix of Llama 3 8B"),
        (decode(*products("fp32"), OTHER), "the program's are fp32"),
        (decode(*products()[:2], ATTENTION), "multiplies 0 weights of the MLP"),
        (
            decode(*(replace(p, operator=replace(p.operator, count=3)) for p in products())),
            "weights of the attention projections, and Llama 3 8B has 1,342,177,280",
        ),
        (
            decode(*products(), replace(ATTENTION, operator=PROMPT)),
            "a step attends from 64 tokens, and a decode step from one",
        ),
        (
            decode(*products(), operator("aten::mm", "8×8 bf16, 8×8 bf16", MS, backward=True)),
            "the program trains",
        ),
        (
            replace(decode(), header=replace(decode().header, peaks=None)),
            "no roof of this device is known",
        ),
    ],
)
def test_a_program_that_cannot_be_compared_is_refused(run: Run, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        table_of(run)


def test_tokens_of_other_steps_than_those_that_were_timed_are_a_remark() -> None:
    remarks = " ".join(text for _, text in table_of(decode()).notes)
    assert "cached tokens are those of 1 steps, and the time between tokens is the mean of 10" in (
        remarks
    )


def test_the_shares_of_the_gap_are_of_the_step_alone() -> None:
    columns = {c.head: c.cells for c in table_of(decode(prompts=(Prompts(8, 64, (0.1,)),))).columns}
    shares = dict(zip(columns["part"], columns["of the gap"], strict=True))
    assert shares["between tokens"] == shares["first token of 8 × 64"] == ""
    assert shares["idle device"] == "61.0 %"


PREPARES = "triton_poi_fused__scaled_dot_product_cudnn_attention_clone_expand_"
PRODUCTS = "products: projections, MLP, head"


def test_products_of_a_compiled_call_are_one_part_with_the_sum_of_the_predictions() -> None:
    eager = parts(decode())
    found = parts(
        step_of(
            kernel("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", 1.5 * MS),
            kernel("void cublasLt::splitKreduce_kernel<32, 16, int>()", 0.5 * MS),
            kernel("void pytorch_flash::flash_fwd_splitkv_kernel<Traits>(Params)", 0.9 * MS),
            kernel(PREPARES + "5", 0.7 * MS, blocks=2**15),
            kernel(PREPARES + "6", 0.1 * MS, blocks=66),
            kernel("triton_red_fused_add_mean_mul_pow_rsqrt_7", 0.3 * MS),
        )
    )
    own = ("attention projections", "MLP", "head")
    assert not found.keys() & set(own)
    whole = found.pop("between tokens")
    assert found[PRODUCTS].predicted_s == pytest.approx(sum(eager[n].predicted_s for n in own))
    assert {name: round(part.measured_s / MS, 6) for name, part in found.items()} == {
        PRODUCTS: 2.0,
        "attention": 0.9,
        "copies of keys and values": 0.7,
        "norms, sums and others": 0.4,
        "idle device": 1.0,
    }
    assert sum(part.predicted_s for part in found.values()) == pytest.approx(whole.predicted_s)
    assert sum(part.measured_s for part in found.values()) == pytest.approx(whole.measured_s)


def test_kernels_of_a_compiled_step_on_an_h200_have_parts_by_their_names() -> None:
    spent: dict[str, float] = {}
    keys = 8 * 32 * 128 * 2112
    for each in measured_kernels():
        part = part_of_kernel(each, keys)
        spent[part] = spent.get(part, 0.0) + (each.time_s or 0.0)
    assert {name: round(seconds / MS, 3) for name, seconds in spent.items()} == {
        "copies of keys and values": 2.895,
        "attention": 2.404,
        PRODUCTS: 4.415,
        "norms, sums and others": 0.425,
    }


def test_the_footer_names_the_kernels_of_a_compiled_call() -> None:
    table = table_of(step_of(*measured_kernels()))
    remarks = [text for _, text in table.notes]
    (own,) = (text for text in remarks if text.startswith(PRODUCTS))
    assert own.startswith(f"{PRODUCTS}, by the names of kernels: nvjet_sm90_tst_64x8_64x16_2x1_v")
    assert own.endswith(
        "cublasLt::splitKreduce_kernel, nvjet_sm90_tst_256x8_64x6_2x1_v_bz_TNT, "
        "cutlass_80_simt_sgemm_128x32_8x5_tn_align1"
    )
    (attends,) = (text for text in remarks if text.startswith("attention, by"))
    assert attends.endswith(
        ": " + next(k.name for k in measured_kernels() if k.name.startswith("cudnn"))
    )
    kernels = {str(row["part"]): row["kernels"] for row in table.rows}
    assert len(kernels["attention"]) == 1 and len(kernels["copies of keys and values"]) == 1
    assert kernels["between tokens"] == []


def test_attention_without_a_kernel_of_that_name_is_in_the_row_of_products() -> None:
    run = step_of(
        kernel("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", 3 * MS),
        kernel("triton_per_fused__softmax_3", 1 * MS),
    )
    found = parts(run)
    assert found["products and attention"].measured_s == pytest.approx(3 * MS)
    assert not found.keys() & {PRODUCTS, "attention"}
    assert any("no kernel is attention by its name" in text for _, text in table_of(run).notes)


def test_a_compiled_call_whose_products_have_shapes_leaves_them_apart() -> None:
    fused = compiled(kernel("triton_poi_fused_mul_silu_8", 0.5 * MS))
    found = parts(decode(*products(), ATTENTION, fused))
    assert found["MLP"].measured_s == pytest.approx(1 * MS)
    assert found["norms, sums and others"].measured_s == pytest.approx(0.5 * MS)


def test_measured_times_replace_those_of_the_roofs() -> None:
    linear = {
        LinearPoint("bf16", 0, 8, n, k): 2 * 2 * n * k / 4.8e12
        for linear in LLAMA.linears
        for n, k in [(linear.outputs, linear.inputs)]
    }
    read = 2 * 8 * 128 * 2 * 8 * (1024 + 1) / 4.8e12
    attention = {DecodePoint("bf16", 32, 8, 128, 1, 8, 1024): 3 * read}
    run, points = decode(), Points(linear, attention)
    table = predicted_table(longest(profiles(run)), run.header, LLAMA, points)
    by_roofs = parts(run)
    for row in table.rows:
        times = {"MLP": 2, "head": 2, "attention projections": 2, "attention": 3}
        name = str(row["part"])
        expected = times.get(name, 1) * by_roofs[name].predicted_s
        if name != "between tokens":
            assert row["predicted_s"] == pytest.approx(expected, rel=1e-3), name
    remarks = " ".join(text for _, text in table.notes)
    assert f"predicted: measured times of {LLAMA.linears[0].name}, attention, " in remarks


def test_sizes_beyond_the_measured_ones_are_a_remark() -> None:
    points = Points({LinearPoint("bf16", 0, 1, 4096, 4096): 1e-5}, {})
    run = decode()
    table = predicted_table(longest(profiles(run)), run.header, LLAMA, points)
    remarks = " ".join(text for _, text in table.notes)
    assert "extrapolated beyond the measured sizes" in remarks
    assert "no times of the workload decode are given" in remarks


def test_measured_times_of_other_formats_are_a_remark_and_change_nothing() -> None:
    points = Points({LinearPoint("int8", 0, 8, 4096, 4096): 1.0}, {})
    run = decode()
    table = predicted_table(longest(profiles(run)), run.header, LLAMA, points)
    assert [row["predicted_s"] for row in table.rows] == [
        row["predicted_s"] for row in table_of(run).rows
    ]
    remarks = [text for _, text in table.notes]
    assert "no measured time is of bf16 weights or of a bf16 cache" in remarks
