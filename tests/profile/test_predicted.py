"""A profile of generated text beside the theory of its model: sizes, parts, and refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_profile import operator, region, run_of

from gpuperf.errors import UsageError
from gpuperf.model.program import Prompts
from gpuperf.model.record import Record, Run
from gpuperf.profile.breakdown import longest, profiles
from gpuperf.profile.predicted import Part, part_of, predicted_table, product_of, sizes_of
from gpuperf.show.table import Table
from gpuperf.theory.transformer.find import builtin_model

LLAMA = builtin_model("llama-3-8b")
MS = 1e-3
FUSED = "8×32×1×128 bf16, 8×8×1025×128 bf16, 8×8×1025×128 bf16"
ATTENTION = operator("aten::_flash_attention", FUSED, 0.4 * MS, "attention", count=32)
PROMPT = operator("", "8×32×64×128 bf16, 8×8×64×128 bf16", MS, "attention").operator
OTHER = operator("aten::mul", "8×1×4096 bf16", 0.5 * MS, "elementwise", count=64)


def products(dtype: str = "bf16", seconds: float = 0.5 * MS) -> tuple[Record, ...]:
    """The products of a decode step of Llama 3 8B with 8 sequences: queries and output alike."""
    shapes = {(4096, 4096): 64, (4096, 1024): 64, (4096, 14336): 64, (14336, 4096): 32}
    each = [
        operator("aten::mm", f"8×{k} {dtype}, {k}×{n} {dtype}", seconds, count=count)
        for (k, n), count in {**shapes, (4096, 128256): 1}.items()
    ]
    return tuple(each)


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
    """3.351 ms between tokens for 8 × 1,024 on an H200, of which the attention has 0.224."""
    found = parts(decode())
    assert found["between tokens"].predicted_s == pytest.approx(3.351 * MS, rel=1e-3)
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
    assert first.predicted_s == pytest.approx(8 * 30.22 * MS - 7 * 0.219 * MS, rel=1e-3)


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
    assert shares["idle device"] == "60.6 %"
