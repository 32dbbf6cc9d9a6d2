"""Is what a comparison says true: how much faster, how sure, beside what, and if some fail?"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import statistics
from dataclasses import replace

import pytest
from synthetic import HOSTILE, decoded
from synthetic_comparison import TOP, cells, compared, failing, one

from gpuperf.errors import UnknownName, UsageError
from gpuperf.model.record import Kernel, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case, Description, ImplementationDescription
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.rows import rows
from gpuperf.roofline.speedup import Speedup, key_of, speedups
from gpuperf.roofline.table import NOTHING, sheet
from gpuperf.run.plan import plan_comparison

SHOWN = "speed-up over naive, one process"


def scattered(median_s: float, sigma: float, draw: random.Random, size: int = 30) -> Samples:
    return Samples(tuple(median_s * math.exp(draw.gauss(0, sigma)) for _ in range(size)))


def speedup(base: Samples, own: Samples) -> Speedup:
    """Of *own* over *base*."""
    first = replace(one("naive", 1.0), times={"window": base})
    second = replace(one("triton", 1.0), times={"window": own})
    return speedups([first, second], "naive")[key_of(second)]


def test_a_speed_up_is_the_ratio_of_the_medians_and_its_halves_add_as_squares() -> None:
    draw = random.Random(1)
    base, own = scattered(8e-3, 0.03, draw), scattered(2e-3, 0.01, draw)
    found = speedup(base, own)
    value = statistics.median(base.values_s) / statistics.median(own.values_s)
    assert found.value == pytest.approx(value)
    assert found.value == pytest.approx(4, rel=0.03)
    assert found.low is not None
    assert found.high is not None
    (bl, bh), (ol, oh) = (s.interval_s for s in (base, own))
    b, o = base.median_s, own.median_s
    down, up = math.log(value / found.low), math.log(found.high / value)
    assert down**2 == pytest.approx(math.log(b / bl) ** 2 + math.log(oh / o) ** 2)
    assert up**2 == pytest.approx(math.log(bh / b) ** 2 + math.log(o / ol) ** 2)


def test_against_a_time_without_scatter_the_interval_is_the_baselines_own() -> None:
    base, exact = scattered(1e-3, 0.02, random.Random(2)), Samples((5e-4,) * 30)
    found, (low, high) = speedup(base, exact), base.interval_s
    assert (found.low, found.high) == pytest.approx((low / 5e-4, high / 5e-4))
    turned = speedup(exact, base)
    assert (turned.low, turned.high) == pytest.approx((5e-4 / high, 5e-4 / low))


def test_the_interval_is_that_of_a_bootstrap() -> None:
    draw = random.Random(3)
    base, own = scattered(3e-3, 0.05, draw, 200), scattered(1e-3, 0.05, draw, 200)
    ratios = sorted(
        statistics.median(draw.choices(base.values_s, k=200))
        / statistics.median(draw.choices(own.values_s, k=200))
        for _ in range(1000)
    )
    found = speedup(base, own)
    assert found.low is not None
    assert found.high is not None
    width = ratios[974] - ratios[25]
    assert abs(found.low - ratios[25]) < 0.25 * width
    assert abs(found.high - ratios[974]) < 0.25 * width


def test_of_a_hundred_intervals_ninety_five_hold_the_truth() -> None:
    draw, hits, trials = random.Random(4), 0, 600
    for _ in range(trials):
        found = speedup(scattered(2e-3, 0.05, draw), scattered(1e-3, 0.02, draw))
        hits += (found.low or math.inf) <= 2 <= (found.high or 0)
    assert 0.93 < hits / trials < 0.99


def test_the_baseline_itself_is_one_without_interval() -> None:
    record = one("naive", 1e-3, 1.1e-3, 1.2e-3)
    assert speedups([record], "naive") == {key_of(record): Speedup(1.0)}


@pytest.mark.parametrize(
    ("base", "own"),
    [
        (one("naive", status="oom"), one("triton", 1e-3)),
        (one("naive", 1e-3, status="wrong"), one("triton", 1e-3)),
        (one("naive", 1e-3), one("triton", status="error")),
        (one("naive", 0.0), one("triton", 1e-3)),
        (one("naive", 1e-3), one("triton", -1e-3)),
        (one("naive", 1e300), one("triton", 1e-300)),
        (one("naive", 1e-300), one("triton", 5e-324)),
        (one("naive", 1.7e308, 1.7e308), one("triton", 1.0)),
        (one("naive", 1e-3), one("triton", 1e-3, contract=replace(TOP.contract, cache="hot"))),
        (one("naive", 1e-3), one("triton", 1e-3, pass_index=1)),
        (one("naive", 1e-3), one("triton", 1e-3, case=Case("matmul", "triton", {"m": 513}))),
        (one("naive", 1e-3), one("triton", 1e-3, case=Case("other", "triton", {}))),
        (one("eager", 1e-3), one("triton", 1e-3)),
    ],
)
def test_without_a_time_of_the_same_case_there_is_no_speed_up(base: Record, own: Record) -> None:
    found = speedups([own, base], "naive")
    if base.case.implementation == "naive":
        assert key_of(own) not in found
    shown = Run(replace(TOP, baseline="naive"), (base, own))
    for form in ("table", "json", "csv", "md"):
        assert render_run(shown, form)


@pytest.mark.parametrize(
    ("base", "own"),
    [
        (Samples((2e-3,)), Samples((1e-3, 1e-3, 1e-3))),
        (Samples((2e-3, 2e-3)), Samples((1e-3,))),
        (Samples((2e-9, 1e-9, 3e-9), tick_s=32e-9), Samples((1e-9,) * 3)),
        (Samples((2e-9,) * 3), Samples((1e-9,) * 3, offset_uncertainty_s=1e-9)),
        (Samples((1e300, 2e300, 3e-300, 4e300)), Samples((1e299,) * 9)),
    ],
)
def test_what_has_no_interval_above_zero_gives_a_speed_up_without_one(
    base: Samples, own: Samples
) -> None:
    found = speedup(base, own)
    assert found == Speedup(base.median_s / own.median_s)


def test_what_two_points_share_as_text_is_one_case_whatever_its_order() -> None:
    base = one("naive", 2e-3, case=Case("matmul", "naive", {"m": 1, "n": 2}))
    own = one("triton", 1e-3, case=Case("matmul", "triton", {"n": 2, "m": 1}))
    assert speedups([base, own], "naive")[key_of(own)].value == 2


CASES = tuple(
    Case("matmul", name, {"n": n, "mode": mode})
    for name in ("b", "a", "c")
    for n in (64, 32)
    for mode in ("fwd", "bwd")
)


PLAIN = Description(
    "matmul", "", "", (), tuple(ImplementationDescription(name) for name in "abc"), 1, ""
)


def test_implementations_that_compute_something_else_are_not_compared() -> None:
    fast = replace(PLAIN.implementations[0], computes="approximations")
    mixed = replace(PLAIN, implementations=(fast, *PLAIN.implementations[1:]))
    with pytest.raises(UsageError, match="b computes the formula, and a approximations") as caught:
        plan_comparison(CASES, None, mixed)
    assert caught.value.hint == "compare implementations that compute the same: --impl b,c"
    with pytest.raises(UsageError, match="a computes approximations, and b the formula"):
        plan_comparison(CASES, "a", mixed)
    alike = tuple(case for case in CASES if case.implementation != "a")
    assert plan_comparison(alike, None, mixed)[1] == "b"


def test_the_implementations_of_one_point_are_measured_one_after_the_other() -> None:
    cases, baseline = plan_comparison(CASES, None, PLAIN)
    assert baseline == "b"
    assert [(c.point["n"], c.point["mode"], c.implementation) for c in cases] == [
        (n, mode, name) for n in (64, 32) for mode in ("fwd", "bwd") for name in ("b", "a", "c")
    ]
    assert plan_comparison(CASES, "c", PLAIN) == (cases, "c")


@pytest.mark.parametrize("name", ["aa", "", "B", HOSTILE])
def test_a_baseline_that_is_not_among_them_is_refused(name: str) -> None:
    with pytest.raises(UnknownName) as caught:
        plan_comparison(CASES, name, PLAIN)
    assert str(caught.value).startswith(f"no implementation to compare with {name!r}")
    assert caught.value.hint == "known: a, b, c"


def test_the_table_shows_speed_up_error_memory_and_kernels() -> None:
    found = cells(sheet(compared()))
    first, second, third = found[SHOWN]
    assert first == "1.00×"
    assert second.startswith("4.00× ±")
    assert third.startswith("10.0× ±")
    assert found["error most"] == ("2.1e-03",) * 3
    assert found["error allowed"] == ("1.4e-02",) * 3
    assert found["memory over inputs"] == ("3.15 MB",) * 3
    assert found["kernels a call"] == ("3",) * 3


def test_a_baseline_that_fails_makes_speed_ups_empty_and_the_rest_stays() -> None:
    run = failing(compared((512, 1024)), "naive", status="oom", reason="asked for 9 GB")
    of = sheet(run)
    assert cells(of)[SHOWN] == (NOTHING,) * 6
    assert of.failures == ("oom: asked for 9 GB", "", "") * 2
    assert [row["speedup"] for row in rows(run)] == [None] * 6
    assert cells(of)["time median"][1] != NOTHING


@pytest.mark.parametrize("status", ["oom", "wrong", "impossible", "error"])
def test_one_that_fails_is_a_row_and_costs_the_others_nothing(status: str) -> None:
    run, whole = failing(compared(), "tiled", status=status, reason="why"), compared()
    of = sheet(run)
    assert of.failures == ("", f"{status}: why", "")
    assert cells(of)[SHOWN][2] == cells(sheet(whole))[SHOWN][2]
    assert {name: column[1] for name, column in cells(of).items() if name != "implementation"} == {
        name: NOTHING if name not in ("m=n=k", "dtype", "caveats") else column[1]
        for name, column in cells(of).items()
        if name != "implementation"
    }


def test_a_baseline_without_any_time_is_told_of_with_another_to_choose() -> None:
    notes = dict(sheet(failing(compared(), "naive", status="oom", reason="why")).notes)
    assert notes["Baseline"].startswith("naive has no time here")
    assert notes["Baseline"].endswith("--baseline tiled")
    assert "Baseline" not in dict(sheet(compared()).notes)


def test_a_baseline_that_impl_leaves_out_is_known_by_name() -> None:
    alone = tuple(case for case in CASES if case.implementation == "a")
    with pytest.raises(UnknownName) as caught:
        plan_comparison(alone, "b", PLAIN)
    assert caught.value.hint == "add b to --impl, which leaves it out"


def test_a_narrow_interval_has_digits_that_tell_it_from_one() -> None:
    told = {}
    for spread in (1e-5, 0.1):
        base = one("naive", 1.00256e-3)
        own = one("tiled", 1e-3)
        samples = [
            Samples(tuple(m * (1 + spread * (k % 5 - 2) / 5) for k in range(99)))
            for m in (1.00256e-3, 1e-3)
        ]
        pair = tuple(
            replace(r, times={r.primary: found})
            for r, found in zip((base, own), samples, strict=True)
        )
        run = Run(replace(TOP, baseline="naive"), pair)
        told[spread] = cells(sheet(run))[SHOWN][1].split()[0]
    assert told == {1e-5: "1.003×", 0.1: "1.00×"}


def test_one_that_never_runs_here_is_a_note_and_no_row_for_every_size() -> None:
    of = sheet(failing(compared(), "tiled", status="skipped", reason="why"))
    assert cells(of)["implementation"] == ("naive", "triton")
    assert of.failures == ("", "")
    assert of.notes[0] == ("Skipped", "tiled: why")
    every = compared()
    for name in ("naive", "tiled", "triton"):
        every = failing(every, name, status="skipped", reason="why")
    assert sheet(every).failures == ("skipped: why",) * 3


def test_json_and_csv_have_the_speed_up_with_its_interval_and_the_baseline() -> None:
    found = json.loads(render_run(compared(), "json"))
    assert found["header"]["baseline"] == "naive"
    last = found["rows"][-1]
    assert last["speedup"] == pytest.approx(10, rel=1e-3)
    assert last["speedup_one_process_low"] < last["speedup"] < last["speedup_one_process_high"]
    assert (last["speedup_low"], last["speedup_high"], last["processes"]) == (None, None, 1)
    assert last["kernels_per_call"] == 3
    assert (found["rows"][0]["speedup"], found["rows"][0]["speedup_low"]) == (1, None)
    for row, line in zip(
        found["rows"], csv.DictReader(io.StringIO(render_run(compared(), "csv"))), strict=True
    ):
        assert float(line["speedup"]) == row["speedup"]
        assert line["speedup_one_process_low"] == str(row["speedup_one_process_low"] or "")
        assert "memory_call_bytes" in line


def test_a_run_that_compares_nothing_has_neither_columns_nor_a_baseline() -> None:
    run = replace(compared(), header=replace(TOP, baseline=""))
    assert not any("speed-up" in name for name in cells(sheet(run)))
    assert json.loads(render_run(run, "json"))["header"]["baseline"] is None
    assert not [text for heading, text in sheet(run).notes if heading == "Ran"]


def notes_under(run: Run, heading: str) -> list[str]:
    return [text for name, text in sheet(run).notes if name == heading]


def test_the_caption_names_the_kernels_that_ran_and_what_was_chosen() -> None:
    run = compared((512, 1024))
    first = replace(run.records[2], chosen={"BLOCK": 128, "warps": 4})
    other = replace(run.records[5], kernels=(Kernel("split"),))
    run = replace(run, records=(*run.records[:2], first, *run.records[3:5], other))
    assert notes_under(run, "Ran") == [
        "naive: 2 × naive_kernel, fill",
        "tiled: 2 × tiled_kernel, fill",
        "triton: 2 × triton_kernel, fill (1 other list in other cases)",
    ]
    assert notes_under(run, "Chosen") == ["triton: BLOCK=128, warps=4"]
    headings = [heading for heading, _ in sheet(run).notes]
    assert headings.index("Chosen") == headings.index("Ran") + 3, "not among what ran"


def test_hostile_kernels_are_cleaned_and_what_is_long_is_cut() -> None:
    name = HOSTILE + "x" * 10_000
    kernels = tuple(Kernel(f"{i}{name}") for i in range(1000))
    records = tuple(
        replace(
            r,
            kernels=kernels,
            chosen={name: name, "n": 10**18},
            case=replace(r.case, implementation=name),
        )
        for r in compared().records
    )
    run = decoded(Run(replace(TOP, baseline=name), records))
    ran, chosen = notes_under(run, "Ran"), notes_under(run, "Chosen")
    for text in (*ran, *chosen):
        assert text.isprintable()
        assert len(text) < 1000
    assert ran[0].endswith(("and 988 more (2 other lists in other cases)", "and 988 more"))
    assert all(c.isprintable() for c in render_run(run, "table").replace("\n", ""))
