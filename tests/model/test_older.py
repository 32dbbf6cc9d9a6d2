"""What older schemas wrote comes back in the fields of this one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import TESTS, name_of, run_file

from gpuperf.model.aten import Tensor
from gpuperf.model.older import operands_of
from gpuperf.model.program import Operator
from gpuperf.run.store import read_run

GOLDEN = TESTS / "golden"
PROFILES = [
    *(GOLDEN / f"run_schema_{n}.jsonl" for n in (7, 8)),
    *(run_file(f"h200-profile-{name}") for name in ("eager", "sdpa", "padded", "compiled")),
]
TENSORS = st.builds(
    Tensor,
    st.lists(st.integers(0, 10**18 - 1), max_size=5).map(tuple),
    st.sampled_from(("bf16", "fp32", "int64", "", "more", "c10::complex<c10::Half>")),
)


@given(st.lists(TENSORS, min_size=1, max_size=6).map(tuple), st.integers(0, 99), st.booleans())
def test_the_words_of_operands_are_read_back(
    tensors: tuple[Tensor, ...], more: int, made: bool
) -> None:
    if tensors[-1].dtype == "more":  # `2 more` as the last words counts tensors
        return
    told = Operator("matmul", 1, tensors=tensors, more=more, made=made).operands
    assert operands_of(told) == (tensors, more, made)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "²×3 bf16, ٣×4 bf16",
        "9" * 5000 + "×3 bf16",
        "→ ×, ,×",
        "-1×3 x",
        "8×8",
        "8 bf16, → 8 bf16",
        "8×8 bf16, " * 200,
    ],
)
def test_a_text_of_another_form_describes_no_tensors(text: str) -> None:
    assert operands_of(text) == ((), 0, False)


@pytest.mark.parametrize("path", PROFILES, ids=name_of)
def test_the_operators_of_an_older_profile_have_the_tensors_of_their_case(path: Path) -> None:
    operators = [record for record in read_run(path).records if record.operator]
    assert operators
    for record in operators:
        assert record.operator is not None
        assert record.operator.operands == record.case.point["of"]


def test_an_older_run_of_timing_check_is_one_by_its_study() -> None:
    header = read_run(run_file("h200-timing-check")).header
    assert header.schema < 10
    assert header.study == "timing-check"
