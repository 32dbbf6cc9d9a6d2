"""The checks around a case detect what one call before the samples cannot show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from fake_bench import CONTRACT, FACTS, make_bench, measure
from gpuperf.kernels.matmul import MATMUL
from gpuperf.kernels.stream import COPY
from gpuperf.kernels.vector_add import ADD
from measured import MEASURED, text_of

from gpuperf.measure.checks import TF32, Comparison, refuse
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.inputs import refill, renew_part, torch_dtype
from gpuperf.measure.registry import load_source
from gpuperf.measure.result_tensors import overlaps_itself, share_memory
from gpuperf.measure.verify import SEED_VARIABLE
from gpuperf.model.contract import Cache
from gpuperf.model.record import Check
from gpuperf.model.workload import Case, Implementation, Point

Call = Callable[[], Any]
Inputs = Mapping[str, torch.Tensor]
SMALL = {"m": 8, "n": 8, "k": 8, "dtype": "fp32"}


def test_inputs_change_at_their_addresses_and_their_versions_do_not() -> None:
    x, y = torch.zeros(4), torch.zeros(4)
    before = (x._version, y._version, x.data_ptr())
    refill({"x": x, "y": y}, {"x": torch.ones(4), "y": torch.ones(4)}, silent=["x"])
    assert (x.sum(), y.sum()) == (4, 4)
    assert (x._version, x.data_ptr()) == (before[0], before[2])
    assert y._version > before[1]


@pytest.mark.parametrize("seed", range(20))
def test_an_eighth_of_an_input_is_renewed_and_never_its_first_element(seed: int) -> None:
    fresh, old = torch.ones(16, 5).t(), torch.zeros(5, 16)
    renew_part({"x": fresh}, {"x": old}, {fresh.data_ptr()}, seed)
    assert fresh.sum() == 10
    assert fresh[0, 0] == 0


def test_only_what_make_has_made_is_mixed_with_older_values() -> None:
    fresh = torch.ones(16)
    renew_part({"x": fresh}, {"x": torch.zeros(16)}, set(), 0)
    assert fresh.sum() == 16


def test_memory_is_shared_where_extents_overlap_whatever_storage_they_name() -> None:
    x = torch.zeros(10)
    assert share_memory(x[:6], x[5:])
    assert not share_memory(x[:5], x[5:])
    assert not share_memory(x, torch.zeros(10))


@pytest.mark.parametrize(
    ("tensor", "overlaps"),
    [
        (torch.zeros(3, 4), False),
        (torch.zeros(3, 4).t(), False),
        (torch.zeros(3, 8)[:, :5], False),
        (torch.zeros(1).expand(5), True),
        (torch.zeros(4).expand(3, 4), True),
        (torch.zeros(6).as_strided((3, 3), (1, 1)), True),
        (torch.zeros(()), False),
    ],
)
def test_elements_in_one_place_are_found(tensor: torch.Tensor, overlaps: bool) -> None:
    assert overlaps_itself(tensor) is overlaps


def test_the_seed_of_a_check_is_drawn_anew_and_can_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = [check.seed for check in (measure(MATMUL, **SMALL).check for _ in "ab") if check]
    assert len({*seeds}) == 2
    monkeypatch.setenv(SEED_VARIABLE, str(seeds[0]))
    again = measure(MATMUL, **SMALL).check
    assert again is not None
    assert again.seed == seeds[0]
    monkeypatch.setenv(SEED_VARIABLE, "one")
    assert "GPUPERF_CHECK_SEED is 'one'" in measure(MATMUL, **SMALL).reason


def stale_after(calls: int) -> Callable[..., Call]:
    """A sum that stays what it was after so many *calls*, from a new tensor each time."""

    def build(inputs: Inputs, point: Point, options: Any) -> Call:
        seen: list[torch.Tensor] = []

        def call() -> torch.Tensor:
            seen.append(inputs["a"] + inputs["b"] if len(seen) < calls else seen[-1])
            return seen[-1].clone()

        return call

    return build


@pytest.mark.parametrize("cache", ["cold", "hot", "rotate"])
def test_a_call_that_stops_working_is_wrong_in_every_state_of_the_cache(cache: Cache) -> None:
    contract = replace(CONTRACT, cache=cache, min_samples=10)
    facts = replace(FACTS, l2_bytes=2000)
    record = measure(ADD, stale_after(4), contract=contract, facts=facts, n=100, dtype="fp32")
    assert record.status == "wrong"
    assert "when timed" in record.reason
    honest = measure(ADD, contract=contract, facts=facts, n=100, dtype="fp32")
    assert (honest.status, honest.reason) == ("ok", "")


def test_a_change_of_an_input_is_refused_with_what_to_declare() -> None:
    def build(inputs: Inputs, point: Point, options: Any) -> Call:
        return lambda: inputs["x"].add_(1) - 1

    record = measure(COPY, build, n=100, dtype="fp32")
    assert record.status == "wrong"
    assert "a change of the input 'x'" in record.reason
    assert 'mutates=("x",)' in record.hint


def test_one_implementation_widens_its_own_tolerance_and_no_other() -> None:
    def build(inputs: Inputs, point: Point, options: Any) -> Call:
        return lambda: inputs["x"].clone()

    wide = Implementation("wide", build, roundings=lambda point: 9)
    workload = replace(COPY, implementations=(wide, Implementation("usual", build)))
    found = [
        make_bench()
        .measure(workload, Case("copy", name, {"n": 9, "dtype": "fp32"}), CONTRACT, "r", 0)
        .check
        for name in ("wide", "usual")
    ]
    tolerances = [check.tolerance for check in found if check]
    assert tolerances[0] - tolerances[1] == pytest.approx(36 * 2.0**-24)


def test_the_settings_of_tf32_are_put_back_after_a_case() -> None:
    assert torch.backends.cuda.matmul.allow_tf32 is False

    def build(inputs: Inputs, point: Point, options: Any) -> Call:
        torch.backends.cuda.matmul.allow_tf32 = True
        return lambda: inputs["a"] @ inputs["b"]

    assert measure(MATMUL, build, **SMALL).status == "ok"
    assert torch.backends.cuda.matmul.allow_tf32 is False


def measured_checks() -> Iterator[tuple[str, str, Point, float]]:
    """Workload, implementation, point and error of each result that an H200 computed."""
    for path in sorted(MEASURED.rglob("*.jsonl.gz")):
        for line in filter(None, text_of(path).splitlines()):
            record = json.loads(line)
            if record.get("type") == "record" and record["status"] == "ok" and record.get("check"):
                case = record["case"]
                point, error = Point(case["point"]), record["check"]["error"]
                yield case["op"], case["implementation"], point, error


def test_every_result_measured_on_an_h200_is_within_its_implementations_tolerance() -> None:
    found, _ = load_source("gpuperf.kernels")
    known, over = 0, []
    for op, name, point, error in measured_checks():
        workload = found.get(op)
        mine = [i for i in workload.implementations if i.name == name] if workload else []
        if workload is None or not mine or point["dtype"] == "int8":
            continue
        flops = workload.cost(point).flops
        dtype = torch_dtype("bf16" if point["dtype"] == "fp8" else str(point["dtype"]))
        judge = Comparison(workload, point, flops[0].accumulate if flops else "", mine[0], False)
        known += 1
        if error > judge.allowed(torch.empty(0, dtype=dtype)):
            over.append((op, name, point, error))
    assert known > 900
    assert over == []


def test_the_straight_line_for_exp2_is_over_the_tolerance_of_flash_attention() -> None:
    """It is 6 % off, which makes 0.066 and more; honest kernels reached 0.013 on an H200."""
    workload = load_source("gpuperf.kernels")[0]["attention"]
    point = Point({axis.name: axis.default for axis in workload.axes} | {"dtype": "bf16"})
    allowed = {
        implementation.name: Comparison(workload, point, "fp32", implementation, False).allowed(
            torch.empty(0, dtype=torch.bfloat16)
        )
        for implementation in workload.implementations
    }
    assert 2 * 0.013 < allowed["sdpa_flash"] == allowed["triton_flash"] < 0.035
    assert 0.06 < allowed["compile"] < allowed["eager"] < 0.11


@pytest.mark.parametrize(
    ("error", "dtype", "on_gpu", "hinted"),
    [
        (1e-3, "fp32", True, True),
        (1e-5, "fp32", True, False),
        (0.1, "fp32", True, False),
        (1e-3, "bf16", True, False),
        (1e-3, "fp32", False, False),
    ],
)
def test_an_error_of_tf32s_size_says_how_to_switch_it_off(
    error: float, dtype: str, on_gpu: bool, hinted: bool
) -> None:
    with pytest.raises(WrongResult) as refused:
        refuse(Check(error=error, tolerance=1e-6, rows=1), Point(dtype=dtype), on_gpu)
    assert (refused.value.hint == TF32) is hinted


def test_a_small_error_everywhere_is_over_the_bound_of_the_root_mean_square() -> None:
    """An exact copy that is off by half its tolerance in every element."""

    def build(inputs: Inputs, point: Point, options: Any) -> Call:
        return lambda: inputs["x"] * (1 + 2.5 * 2.0**-23)

    record = measure(COPY, build, n=1000, dtype="fp32")
    assert record.status == "wrong"
    assert "root mean square" in record.reason
