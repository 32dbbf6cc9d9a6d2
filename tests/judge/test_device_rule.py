"""What was observed of a GPU convicts each kind of cheat, and no honest submission."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_judge import (
    CALLS,
    NEEDED,
    collected,
    evidence,
    hardware,
    recorded,
    seen,
    verdict,
    window,
)

from gpuperf.judge.author import author_of, shares
from gpuperf.judge.evidence import Audit, CaseEvidence, Counted, Hardware, Ran
from gpuperf.judge.fact import Fact
from gpuperf.judge.plan import EMPTY_ROUNDS, SINGLE_ROUNDS, WATCHED_ROUNDS, Plan
from gpuperf.judge.rule import Judgement, judge_case
from gpuperf.judge.verdict import SCHEMA, read_verdict, recheck, write_verdict
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.metrics import derive
from gpuperf.model.peaks import Ceiling, Figure, Peaks

COST = Cost(
    (Flops(2_000_000_000, "matmul", "fp32"),), (Bytes(read=int(NEEDED), written=int(NEEDED / 2)),)
)
FACTS = """
stream order pause rest work collect kernels bytes operations precision floor author withdrawal
"""


def judge(found: Hardware, **more: Any) -> Judgement:
    declared = {"cost": COST, "cost_is_derived": False}
    return judge_case(evidence(2.0, hardware=found, **{**declared, **more}))


def facts(judged: Judgement) -> Mapping[str, Fact]:
    return {one.name: one for one in judged.facts}


def sides(mine: Any, theirs: Any) -> Any:
    return (*mine, *theirs)


def test_an_honest_submission_is_valid_with_all_facts_and_grade_a() -> None:
    judged = judge(hardware())
    assert (judged.status, judged.reason) == ("valid", "")
    known = facts(judged)
    assert set(FACTS.split()) <= known.keys()
    unknown = {name for name in FACTS.split() if known[name].result == "unavailable"}
    assert unknown == {"floor"}  # no roofs are known
    assert known["bytes"].seen == pytest.approx(CALLS * NEEDED / (CALLS * NEEDED - 50e6))
    assert evidence(hardware=hardware()).grade == "A"


def test_without_counters_the_grade_is_b_and_the_reasons_are_given() -> None:
    missing = {"witness": "no permission", "operations": "no library", "kernels": "busy"}
    found = hardware(seen=(), counted=(), recorded=(), missing=missing)
    judged = judge(found)
    assert judged.status == "valid"
    assert evidence(hardware=found).grade == "B"
    said = {name: one.text for name, one in facts(judged).items() if one.result == "unavailable"}
    assert said["bytes"] == said["pause"] == "no permission"
    assert said["operations"] == said["precision"] == "no library"
    assert said["stream"] == said["order"] == said["kernels"] == said["author"] == "busy"


REFERENCE = recorded("reference", 8e-4)
LATE = collected("submission", 5e-3)
SOME = Ran("another", 3, 3e-3)
CONVICTED: Mapping[str, tuple[dict[str, Any], str]] = {
    "stream": ({"recorded": sides(recorded("submission", 4e-4, 1e-3), REFERENCE)}, "cheat"),
    "order": ({"recorded": sides(recorded("submission", 4e-4, early_s=3e-4), REFERENCE)}, "wrong"),
    "pause": ({"seen": sides(seen("submission", 1.0, 8e-3), seen("reference"))}, "cheat"),
    "rest": ({"probes": (9e-3,) * 20}, "cheat"),
    "work": ({"recorded": sides(recorded("submission", 4e-3), REFERENCE)}, "cheat"),
    "collect": (
        {"collected": sides(collected("submission", 5e-3), collected("reference"))},
        "cheat",
    ),
    "kernels": ({"recorded": sides(recorded("submission", 4e-4, 0.0, SOME), REFERENCE)}, "suspect"),
    "bytes": ({"seen": sides(seen("submission", 0.1), seen("reference"))}, "cheat"),
    "operations": (
        {
            "counted": (
                Counted("submission", {"fp32_flops": 2e6, "tensor_tf32": 0.0}),
                Counted("reference", {"fp32_flops": 2e9, "tensor_tf32": 0.0}),
            )
        },
        "suspect",
    ),
}


@pytest.mark.parametrize("name", CONVICTED)
def test_each_sign_convicts(name: str) -> None:
    change, status = CONVICTED[name]
    judged = judge(hardware(**change))
    assert judged.status == status
    failed = [one.name for one in judged.facts if one.result == "failed"]
    assert failed == [name]
    assert judged.reason == facts(judged)[name].text != ""
    assert judged.score is None


@pytest.mark.parametrize(
    "change",
    [
        {"recorded": sides(recorded("submission", 4e-4, 1e-3), recorded("reference", 8e-4, 1e-3))},
        {"seen": sides(seen("submission", 1.0, 8e-3), seen("reference", 1.0, 8e-3))},
        {"seen": sides(seen("submission", 0.4), seen("reference", 0.4))},
        {"seen": sides(seen("submission", 0.9), seen("reference", 2.0))},
        {"recorded": sides(recorded("submission", 4e-4, 5e-6), REFERENCE)},
        {"collected": sides(collected("submission", 4e-3), collected("reference", 4e-3))},
    ],
)
def test_what_the_reference_does_too_accuses_nobody(change: dict[str, Any]) -> None:
    assert judge(hardware(**change)).status == "valid"


def test_few_bytes_missing_are_suspect_and_many_a_cheat() -> None:
    by = {
        share: judge(hardware(seen=sides(seen("submission", share), seen("reference")))).status
        for share in (0.95, 0.7, 0.3)
    }
    assert by == {0.95: "valid", 0.7: "suspect", 0.3: "cheat"}


def test_inputs_that_may_lie_in_the_l2_need_no_dram() -> None:
    small = hardware(
        needed_bytes=1e6, seen=sides(seen("submission", 0.01), seen("reference", 0.01))
    )
    judged = judge(small)
    assert judged.status == "valid"
    assert facts(judged)["bytes"].result == "unavailable"


@pytest.mark.parametrize(
    ("needed", "share", "result"),
    [
        (20e6, 0.95, "ok"),
        (20e6, 0.8, "unavailable"),  # a part may lie in the L2
        (20e6, 3.0, "unavailable"),  # of its own memory
        (2e6, 1.0, "unavailable"),  # of the size of the noise
    ],
)
def test_inputs_of_about_an_l2_that_were_read_from_dram_are_evidence(
    needed: float, share: float, result: str
) -> None:
    """Windows have three calls, and the L2 has 50 MB."""
    windows = [
        replace(one, calls=3, read=share * 3 * needed)
        for side in ("submission", "reference")
        for one in seen(side)
    ]
    found = facts(judge(hardware(needed_bytes=needed, seen=tuple(windows))))["bytes"]
    assert found.result == result


def test_lower_precision_convicts_where_results_are_wrong_alone() -> None:
    tf32 = Counted("submission", {"tensor_tf32": 2e9, "fp32_flops": 2e9})
    found = hardware(counted=(tf32, Counted("reference", {"tensor_tf32": 0.0, "fp32_flops": 2e9})))
    right = judge(found)
    assert right.status == "valid"
    assert facts(right)["precision"].text == "tf32 is used, and the results are right"
    wrong = judge(found, audits=(Audit(1, "nominal", reason="is off by 1"),) * 8)
    assert (wrong.status, "in tf32, and is wrong" in wrong.reason) == ("cheat", True)
    both = tuple(replace(tf32, side=side) for side in ("submission", "reference"))
    same = judge(hardware(counted=both), audits=(Audit(1, "nominal", reason="is off"),) * 8)
    assert same.status == "wrong"


def test_operations_are_those_that_the_counters_of_a_kernel_are_summed_to() -> None:
    """A product in fp32 by its vector instructions; the judge looked for names that none has."""
    raw = {"fp32_fma": 1e9, "fp32_mul": 1e6, "fp32_add": 1e6, "tensor_tf32": 0.0, "fp16_fma": 0.0}
    counted = tuple(Counted(side, derive(raw)) for side in ("submission", "reference"))
    known = facts(judge(hardware(counted=counted)))["operations"]
    assert (known.result, known.seen) == ("ok", pytest.approx(1.001))
    halves = Counted("submission", derive({**raw, "fp32_fma": 0.0, "fp16_fma": 5e8}))
    assert facts(judge(hardware(counted=(halves, counted[1]))))["operations"].result == "ok"


def test_fewer_operations_than_those_of_the_reference_may_be_another_algorithm() -> None:
    few = Counted("submission", {"fp32_flops": 2e6, "tensor_tf32": 0.0})
    counted = (few, Counted("reference", {"fp32_flops": 2e9, "tensor_tf32": 0.0}))
    for derived in (True, None):  # None: of a verdict that did not say
        judged = judge(hardware(counted=counted), cost_is_derived=derived)
        assert judged.status == "valid"
        assert "perhaps by another algorithm" in facts(judged)["operations"].text
    assert judge(hardware(counted=counted)).status == "suspect"


@pytest.mark.parametrize("control", [{"fp32_flops": 0.0, "tensor_tf32": 0.0}, {}])
def test_a_reference_without_operations_that_count_asks_for_none(control: Any) -> None:
    """A maximum, a sum of whole numbers and atomic additions are in no counter."""
    few = Counted("submission", {"fp32_flops": 0.0, "tensor_tf32": 0.0})
    judged = judge(hardware(counted=(few, Counted("reference", control))))
    assert judged.status == "valid"
    assert "none of the reference's operations" in facts(judged)["operations"].text


def test_a_verdict_of_an_older_schema_is_judged_as_it_was(tmp_path: Path) -> None:
    few = Counted("submission", {"fp32_flops": 2e6, "tensor_tf32": 0.0})
    counted = (few, Counted("reference", {"fp32_flops": 2e9, "tensor_tf32": 0.0}))
    path = tmp_path / "verdict.json"
    write_verdict(verdict(evidence(hardware=hardware(counted=counted), cost=COST)), path)
    stored = json.loads(path.read_text())
    for case in stored["cases"]:
        del case["evidence"]["cost_is_derived"]
    path.write_text(json.dumps({**stored, "schema": 3}))
    assert recheck(read_verdict(path)).status == "valid"


def test_counters_without_the_vector_pipes_judge_no_operations() -> None:
    lame = Counted("submission", {"tensor_tf32": 0.0, "fp32_add": 12.0})
    judged = judge(hardware(counted=(lame, replace(lame, side="reference"))))
    assert facts(judged)["operations"].result == "unavailable"
    assert judged.status == "valid"


@pytest.mark.parametrize(("bandwidth", "status"), [(4e12, "valid"), (5e10, "suspect")])
def test_a_bandwidth_above_the_roof_is_suspect(bandwidth: float, status: str) -> None:
    figure = Figure(bandwidth, "byte/s", "measured", "calibrate")
    names = {"memory_bandwidth": figure}
    roofs = Peaks("measured", "a GPU", "", "", "", ("a GPU",), 8, (), names)
    judged = judge(hardware(), roofs=roofs)
    assert judged.status == status
    assert (facts(judged)["floor"].result == "failed") == (status == "suspect")


@pytest.mark.parametrize(("rate", "status"), [(1e12, "valid"), (1e11, "suspect")])
def test_a_rate_of_products_above_the_roof_is_suspect(rate: float, status: str) -> None:
    """A call of 1 ms does 2e9 FLOP, of which 2e8 must be products."""
    dtype = Ceiling("tensor", "tf32", "fp32", Figure(rate, "FLOP/s", "measured", "calibrate"))
    lower = Ceiling("tensor", "fp8", "fp32", Figure(1e15, "FLOP/s", "measured", "calibrate"))
    roofs = Peaks("measured", "a GPU", "", "", "", ("a GPU",), 8, (dtype, lower), {})
    judged = judge(hardware(), roofs=roofs)
    assert judged.status == status
    assert (facts(judged)["floor"].result == "failed") == (status == "suspect")


def test_the_author_is_told_by_the_names_of_kernels() -> None:
    names = {
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>": "PyTorch",
        "triton_poi_fused_add_0": "torch.compile",
        "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NNT": "cuBLAS",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3": "cuBLAS",
        "void cudnn::ops::nchwToNhwcKernel<float>": "cuDNN",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>": "PyTorch",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float>>>": "cuBLAS",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>": "cuBLAS",
        "void cub::CUB_200400_SM_900::DeviceReduceKernel<float>(float*)": "CUB and Thrust",
        "triton_red_fused__softmax_1": "torch.compile",
        "my_kernel": "own",
        "elementwise": "own",
        "my_elementwise_kernel": "own",
        "void add_kernel<c10::BFloat16>(c10::BFloat16 const*, c10::BFloat16*)": "own",
        "void row_sum<float, cub::BlockReduce<float, 256>>(float const*)": "own",
        "triton_mm_kernel": "own",
        "triton_red_kernel": "own",
        "dot_kernel": "own",
        "conv_fprop": "own",
    }
    assert {name: author_of(name) for name in names} == names
    ran = (Ran("my_kernel", 1, 3.0), Ran("nvjet_x", 1, 1.0), Ran("Memset (Device)", 1, 9.0))
    assert shares(ran) == {"own": 0.75, "cuBLAS": 0.25}
    text = facts(judge(hardware()))["author"].text
    assert text == "time of kernels: own 100 %"


@pytest.mark.parametrize(("share", "status"), [(0.0, "valid"), (0.05, "valid"), (0.2, "suspect")])
def test_a_librarys_kernels_are_doubted_where_they_are_forbidden(share: float, status: str) -> None:
    library = Ran("nvjet_tst_128x256", CALLS, CALLS * 4e-4 * share)
    mine = recorded("submission", 4e-4 * (1 - share), 0.0, *((library,) if share else ()))
    found = hardware(recorded=sides(mine, REFERENCE))
    assert judge(found).status == "valid"
    judged = judge(found, forbidden="library")
    assert judged.status == status
    if status != "valid":
        whose = "20 % of the time is in kernels of libraries, which are forbidden"
        assert judged.reason == f"{whose} (own 80 %, cuBLAS 20 %)"
    author = facts(judged)["author"]
    assert author.bound == 0.9
    assert author.text.count("own ") == 1


def test_whose_kernels_ran_must_be_known_where_a_librarys_are_forbidden() -> None:
    unseen = judge(hardware(recorded=(), missing={"kernels": "busy"}), forbidden="library")
    on_cpu = judge_case(evidence(2.0, forbidden="library"))
    assert (unseen.status, on_cpu.status) == ("inconclusive", "inconclusive")
    assert unseen.reason == "whose kernels ran is unknown, and libraries are forbidden: busy"
    assert "needs the records of a GPU" in on_cpu.reason


def test_stored_evidence_of_a_gpu_is_judged_again(tmp_path: Path) -> None:
    change, status = CONVICTED["bytes"]
    for found, expected in ((hardware(), "valid"), (hardware(**change), status)):
        path = tmp_path / "verdict.json"
        write_verdict(verdict(evidence(hardware=found, cost=COST)), path)
        again = recheck(read_verdict(path))
        assert (again.status, again.grade, again.schema) == (expected, "A", SCHEMA)


def roomless(claims: float = 0.95, call_s: float = 4e-3) -> CaseEvidence:
    """Evidence of a task whose contents leave room for one call in a window."""
    mine = call_s, claims
    windows = [
        window(0, number, side, calls, *(mine if side == "submission" else (4e-3, 0.95)))
        for number in range(16)
        for side in ("submission", "reference")
        for calls in ([1] if number < 13 else [0])
    ]
    found = hardware(recorded=sides(recorded("submission", 4e-3), recorded("reference", 4e-3)))
    return replace(evidence(hardware=found, cost=COST), windows=tuple(windows))


def test_windows_of_one_long_call_are_compared_with_the_clock_and_the_records() -> None:
    known = facts(judge_case(roomless()))
    for name in ("clock", "work"):
        assert known[name].result == "ok", known[name]
    assert known["alone"].text == "no window has several calls"
    assert known["collect"].text == "a copy of results may take longer than a call"
    assert facts(judge_case(roomless(claims=0.3)))["clock"].result == "failed"
    assert facts(judge_case(roomless(call_s=5e-4)))["work"].result == "failed"


@pytest.mark.parametrize("slots", [3, 4, 9])
def test_all_rounds_but_those_of_one_call_have_several_if_slots_allow(slots: int) -> None:
    for secret in range(200):
        counts = [len(r.order) for r in Plan(secret, slots, ("nominal",), 4e-3, gpu=True).rounds()]
        assert counts.count(0) == EMPTY_ROUNDS
        assert counts.count(1) == SINGLE_ROUNDS


def test_windows_of_one_call_are_watched_if_there_are_no_others() -> None:
    """Half of the plans had a window without calls as the only one that was watched."""
    for secret in range(20):
        plan = Plan(secret, 2, ("nominal",), 4e-3, gpu=True)
        watched = [each for each in plan.rounds() if each.watched]
        assert [len(each.contents) for each in watched] == [1] * WATCHED_ROUNDS
    several = Plan(1, 9, ("nominal",), 4e-3, gpu=True).rounds()
    assert all(len(each.contents) > 1 for each in several if each.watched)
