"""Do traced times become those of the plain step, whoever the profiler delayed?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_profile import operator, region, run_of

from gpuperf.model.record import Record
from gpuperf.profile.breakdown import Profile, kernels_of, profile_of
from gpuperf.profile.output import render_profile
from gpuperf.profile.scales import MOST_SLOWER, fit_step

MS = 1e-3
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def traced(computed_s: float, linked_s: float, exposed_s: float) -> tuple[Record, ...]:
    """A region with a plain step of 100 ms, and its operators: a product and a collective."""
    seconds = {"compute": computed_s, "communication": linked_s, "exposed": exposed_s}
    whole = region(busy_s=computed_s + exposed_s, occupied={**seconds, "busy": 0.0})
    product = operator("aten::mm", "8×8 bf16, 8×8 bf16", computed_s)
    linked = operator("c10d::allreduce_", "8 bf16", linked_s, "communication", kernel=NCCL)
    return whole, product, linked


def fitted(*records: Record, waiting_s: float | None) -> Profile:
    whole, *operators = records
    return profile_of(whole, operators, run_of(whole, ()).header, waiting_s)


def seconds(profile: Profile) -> dict[str, float]:
    return {row.record.case.op: row.seconds for row in profile.operators}


@pytest.mark.parametrize("waiting_s", [110 * MS, None])
def test_what_a_rank_waits_longer_in_the_trace_is_taken_from_its_collectives(
    waiting_s: float | None,
) -> None:
    """As tensor parallel on four H200: of 134 traced ms, 120 are in collectives."""
    found = fitted(*traced(14 * MS, 120 * MS, 120 * MS), waiting_s=waiting_s)
    assert seconds(found) == pytest.approx({"aten::mm": 14 * MS, "c10d::allreduce_": 86 * MS})
    assert [use.seconds for use in kernels_of(found)] == pytest.approx([86 * MS, 14 * MS])
    assert found.parts["communication"] == pytest.approx(86 * MS)
    assert sum(found.parts.values()) == pytest.approx(100 * MS)


def test_kernels_are_shortened_by_what_waiting_does_not_explain() -> None:
    """As FSDP on four H200: 110 ms in kernels, 10 exposed, of which the rank waits in 6."""
    found = fitted(*traced(110 * MS, 50 * MS, 10 * MS), waiting_s=6 * MS)
    assert found.scales.kernels == pytest.approx((100 - 4) / 110)
    assert found.scales.collectives == pytest.approx(44 / 50)
    assert found.parts["communication"] == pytest.approx(4 * MS)
    assert sum(found.parts.values()) == pytest.approx(100 * MS)


def test_what_leaves_kernels_no_time_is_waiting_after_all() -> None:
    """Kernels of 14 ms have no room beside collectives of 119."""
    found = fitted(*traced(14 * MS, 120 * MS, 120 * MS), waiting_s=1 * MS)
    assert found.scales.kernels == pytest.approx(1.0)
    assert found.parts["communication"] == pytest.approx(86 * MS)
    assert sum(found.parts.values()) == pytest.approx(100 * MS)


def test_collectives_in_which_nobody_waits_keep_their_time() -> None:
    found = fitted(*traced(132 * MS, 5 * MS, 5 * MS), waiting_s=0.0)
    assert found.scales.kernels == pytest.approx(95 / 132)
    assert found.parts["communication"] == pytest.approx(5 * MS)


def test_a_plain_step_may_wait_longer_than_a_traced_one() -> None:
    whole, *operators = traced(2 * MS, 90 * MS, 90 * MS)
    assert whole.program is not None
    occupied = {**whole.program.occupied, "idle_most": 0.0}
    whole = replace(whole, program=replace(whole.program, occupied=occupied))
    found = fitted(whole, *operators, waiting_s=0.0)
    assert found.scales.kernels == pytest.approx(MOST_SLOWER)
    assert found.parts["communication"] == pytest.approx((100 - 2 * MOST_SLOWER) * MS)


def test_hidden_communication_counts_as_the_compute_that_hides_it() -> None:
    found = fitted(*traced(90 * MS, 60 * MS, 10 * MS), waiting_s=0.0)
    assert seconds(found) == pytest.approx({"aten::mm": 90 * MS, "c10d::allreduce_": 60 * MS})
    assert found.parts["communication"] == pytest.approx(10 * MS)
    assert sum(found.parts.values()) == pytest.approx(100 * MS)


def test_a_share_of_the_roof_above_one_is_doubted_where_times_were_shortened() -> None:
    whole, product, _ = traced(120 * MS, 1 * MS, 0.0)
    fast = operator("aten::mm", "8×8 bf16, 8×8 bf16", 120 * MS, flops=200 * 10**12)
    text = render_profile(run_of(whole, (fast,)), "table", verbose=True)
    assert "times of kernels are 0.833 times those of the trace" in text
    assert "the roof is too low, or times of kernels were scaled too far" in text
    alike = replace(fast, times=product.times)
    same = render_profile(run_of(region(busy_s=90 * MS), (alike,)), "table", verbose=True)
    assert "the roof is too low\n" in same


@given(
    computed_s=st.floats(0, 0.2),
    linked_s=st.floats(0, 0.2),
    hidden=st.floats(0, 1),
    waiting_s=st.none() | st.floats(0, 0.3),
)
def test_nothing_is_longer_than_the_step_or_less_than_nothing(
    computed_s: float, linked_s: float, hidden: float, waiting_s: float | None
) -> None:
    exposed_s = max(0.0, linked_s - hidden * computed_s)
    whole, *operators = traced(computed_s, linked_s, exposed_s)
    plain = fit_step(whole, operators, 100 * MS, waiting_s)
    assert plain is not None
    assert plain.exposed_s is not None
    assert 0 <= plain.exposed_s <= plain.busy_s <= 100 * MS
    scales = plain.scales
    assert scales.collectives >= 0
    assert 0 <= scales.kernels <= MOST_SLOWER + 1e-9
    assert scales.kernels * computed_s + plain.exposed_s <= 100 * MS + 1e-9
    parts = fitted(whole, *operators, waiting_s=waiting_s).parts
    assert sum(parts.values()) == pytest.approx(100 * MS)
    assert min(parts.values()) >= -1e-12
