"""What changed between two profiles: is each operator matched, and is the cause what it was?"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.cells import cell_len
from synthetic_profile import operator, region, run_of, training

from gpuperf.errors import UsageError
from gpuperf.model.record import Kernel, Record, Run
from gpuperf.profile.breakdown import profiles
from gpuperf.profile.diff import Change, Difference, differences
from gpuperf.profile.diff_table import render_changes
from gpuperf.show.screen import Screen
from gpuperf.verb.options import Format
from gpuperf.verb.printing import print_changes

MATMUL = operator("aten::mm", "8×8 bf16, 8×8 bf16", 20e-3, flops=10**13, moved=10**9)
MUL = operator("aten::mul", "8×8 bf16", 10e-3, "elementwise", 10**9, 20 * 10**9)


def slower(record: Record, times: float, **changes: object) -> Record:
    samples = record.samples
    assert samples is not None
    own = replace(samples, values_s=(samples.values_s[0] * times,))
    return replace(record, times={"busy": own}, **changes)  # type: ignore[arg-type]


def runs(before: tuple[Record, ...], after: tuple[Record, ...]) -> tuple[Run, Run]:
    return run_of(region(), before), run_of(region(step_s=0.11), after)


def between(before: tuple[Record, ...], after: tuple[Record, ...]) -> Difference:
    (found,) = differences(*map(profiles, runs(before, after)))
    return found


def change(before: Record | None, after: Record | None) -> Change:
    found = between((before,) if before else (), (after,) if after else ())
    (one,) = found.changes
    return one


def test_nothing_changed_between_a_profile_and_itself() -> None:
    (found,) = differences(profiles(training()), profiles(training()))
    assert found.changes == ()
    assert found.ratio == 1.0
    assert "no operator changed" in render_changes(training(), training(), "table")


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (MUL, slower(MUL, 1.5), "lower bandwidth"),
        (MATMUL, slower(MATMUL, 1.5), "lower compute rate"),
        (MATMUL, slower(MATMUL, 0.5), "the same kernels, faster"),
        (MUL, None, "gone"),
        (None, MUL, "new"),
        (MUL, slower(MUL, 2, kernels=(Kernel("new"),)), "another kernel: aten::mul_kernel → new"),
        (MUL, slower(MUL, 2, kernels=(Kernel("aten::mul_kernel", 24),)), "12 → 24 kernels"),
    ],
)
def test_each_change_has_its_cause(before: Record | None, after: Record | None, cause: str) -> None:
    assert change(before, after).cause == cause


def test_more_calls_are_told() -> None:
    assert MUL.operator is not None
    more = slower(MUL, 2, operator=replace(MUL.operator, count=24))
    assert change(MUL, more).cause == "12 → 24 calls"
    assert change(MUL, more).delta_s == pytest.approx(10e-3)


def test_the_largest_change_comes_first_whichever_way() -> None:
    pair = runs((MUL, MATMUL), (slower(MUL, 1.1), slower(MATMUL, 0.2)))
    (found,) = differences(*map(profiles, pair))
    assert [one.operator for one in found.changes] == ["aten::mm", "aten::mul"]
    text = render_changes(*pair, "table")
    assert "100.0 ms → 110.0 ms (+10.0 %)" in text
    assert "−16.00 ms" in text
    rows = json.loads(render_changes(*pair, "json"))
    assert rows[0]["delta_s"] == pytest.approx(-16e-3)
    assert render_changes(*pair, "md").startswith("**step: 100.0 ms → 110.0 ms")


def test_profiles_without_a_common_region_are_refused() -> None:
    other = run_of(replace(region(), region="other"), ())
    with pytest.raises(UsageError, match="no region in common: step and other"):
        differences(profiles(run_of(region(), ())), profiles(other))


def test_what_is_no_profile_is_refused() -> None:
    run = training()
    plain = replace(run, header=replace(run.header, study=""))
    with pytest.raises(UsageError, match="is not a profile"):
        print_changes(plain, run, Format.TABLE)


def test_operators_of_one_name_differ_on_a_narrow_screen() -> None:
    long = operator("aten::_scaled_dot_product_cudnn_attention_backward", "8×8 bf16", 30e-3)
    before = (long, MATMUL, operator("aten::mm", "9×9 bf16", 15e-3))
    text = render_changes(*runs(before, ()), "table", Screen(100))
    assert max(map(cell_len, text.splitlines())) <= 100
    assert "8×8 bf16, 8×8 bf16" in text
    assert "9×9 bf16" in text
    assert "−" in text
    assert "-1" not in text
