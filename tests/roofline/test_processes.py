"""Does a comparison over several processes say what they say together, and what went wrong?"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import QUICK, SAXPY, CommandLine, Ended
from synthetic import h200_device, h200_peaks, header, matmul
from synthetic_comparison import cells, one

from gpuperf.model.contract import Contract
from gpuperf.model.energy import Energy
from gpuperf.model.noise import next_interval
from gpuperf.model.protocol import Opened
from gpuperf.model.record import NO_COUNTERS, Caveat, Check, Kernel, Noise, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.processes import FEWER, reduce_processes
from gpuperf.roofline.rows import entries_of
from gpuperf.roofline.series import dots_of
from gpuperf.roofline.speedup import key_of, speedups
from gpuperf.roofline.table import NOTHING, sheet
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import measure_cases, rest_of_schedule, schedule_of
from gpuperf.run.store import read_run

TOP = replace(
    header(h200_device(), Contract("blocked"), h200_peaks()),
    baseline="naive",
    main=("m", "n", "k"),
    processes=3,
)
# The processes differ by 10 %, and treat both implementations alike but for a percent.
BASE = (4.0e-3, 4.4e-3, 3.6e-3)
OWN = (1.0e-3, 1.11e-3, 0.89e-3)
T2 = 4.302653


def timed(implementation: str, index: int, time_s: float, **changes: Any) -> Record:
    """A record of one process, whose samples scatter by a tenth of a percent."""
    record = matmul(TOP, 512, time_s, 1.9e9, implementation)
    times = {"window": Samples(tuple(time_s * (1 + k / 1000) for k in (-1, 0, 1) * 10))}
    return replace(record, times=times, primary="window", pass_index=index, **changes)


def both(base: tuple[float, ...] = BASE, own: tuple[float, ...] = OWN) -> Run:
    """Two implementations in as many processes as they have times."""
    sides = {"naive": base, "triton": own}
    return Run(
        TOP,
        tuple(
            timed(name, index, time_s)
            for name, times in sides.items()
            for index, time_s in enumerate(times)
        ),
    )


def changed(run: Run, name: str, index: int, **changes: Any) -> Run:
    """*run* with one record changed."""
    return replace(
        run,
        records=tuple(
            replace(r, **changes) if (r.case.implementation, r.pass_index) == (name, index) else r
            for r in run.records
        ),
    )


def test_the_interval_of_a_speed_up_is_that_of_the_ratios_by_process() -> None:
    run = both()
    found = speedups(run.records, "naive")[key_of(run.records[-1])]
    logs = [math.log(b / o) for b, o in zip(BASE, OWN, strict=True)]
    mean = sum(logs) / 3
    half = T2 * math.sqrt(sum((x - mean) ** 2 for x in logs) / 2 / 3)
    assert (found.value, found.processes) == (pytest.approx(4.0), 3)
    assert found.low == pytest.approx(math.exp(mean - half), rel=1e-6)
    assert found.high == pytest.approx(math.exp(mean + half), rel=1e-6)
    assert found.high - found.low < 0.3  # the 10 % that both sides share are not in it


def test_a_process_that_timed_one_side_only_has_no_ratio() -> None:
    run = both(own=OWN[:2])
    found = speedups(run.records, "naive")[key_of(run.records[-1])]
    assert found.processes == 2
    shown = cells(sheet(both(own=OWN[:1])))
    assert shown["speed-up over naive, 3 processes"] == ("1.00×", "4.00×")
    assert shown["interval 3 processes"][1] == NOTHING


def test_a_case_is_one_row_with_the_middle_time_and_the_interval_over_processes() -> None:
    base, own = entries_of(both())
    assert (base.processes, own.processes) == (3, 3)
    assert own.time is not None
    assert own.time.median_s == pytest.approx(1.0e-3)
    assert own.record.pass_index == 0
    assert own.across_s is not None
    assert own.across_s[0] < 0.85e-3 < 1.15e-3 < own.across_s[1]
    shown = cells(sheet(both()))
    assert shown["implementation"] == ("naive", "triton")
    assert "pass" not in shown
    assert shown["interval 3 processes"][1].startswith(("±", "−2"))
    assert shown["speed-up over naive, 3 processes"][1].startswith("4.00× ")


def test_a_roofline_draws_the_interval_over_processes() -> None:
    own = entries_of(both())[1]
    (dot,) = dots_of(own, True, "compulsory").values()
    assert own.across_s is not None
    assert own.record.cost is not None
    ends = tuple(own.record.cost.flop_count / end_s for end_s in reversed(own.across_s))
    assert (dot.low, dot.high) == pytest.approx(ends)
    assert dot.low < 0.87 * dot.y  # within a process they scatter by a tenth of a percent


def test_of_two_processes_the_slower_is_shown() -> None:
    own = entries_of(both(BASE[:2], OWN[:2]))[1]
    assert own.time is not None
    assert own.time.median_s == max(OWN[:2])


def test_each_format_says_whether_an_interval_is_over_processes_or_in_one() -> None:
    alone = replace(both(BASE[:1], OWN[:1]), header=replace(TOP, processes=1))
    heads = {}
    for name, run in (("one", alone), ("three", both())):
        assert ("one process" in render_run(run, "table")) is (name == "one")
        assert ("one process" in render_run(run, "md")) is (name == "one")
        row = json.loads(render_run(run, "json"))["rows"][1]
        (_, line) = csv.DictReader(io.StringIO(render_run(run, "csv")))
        heads[name] = {k for k in row if k.startswith("speedup_") and row[k] is not None}
        assert heads[name] == {k for k in line if k.startswith("speedup_") and line[k]}
        assert row["processes"] == (1 if name == "one" else 3)
    assert heads == {
        "one": {"speedup_one_process_low", "speedup_one_process_high"},
        "three": {"speedup_low", "speedup_high"},
    }


@pytest.mark.parametrize("status", ["wrong", "crashed", "oom"])
def test_a_case_that_failed_in_one_process_failed(status: str) -> None:
    lost = {"times": {}, "primary": "", "status": status, "reason": "why"}
    run = changed(both(), "triton", 1, **lost)
    of = sheet(run)
    assert of.failures == ("", f"{status}: in process 2: why")
    assert cells(of)["speed-up over naive, 3 processes"] == ("1.00×", NOTHING)
    whole = changed(both(), "naive", 2, **lost)
    assert cells(sheet(whole))["speed-up over naive, one process"] == (NOTHING, NOTHING)


def test_what_is_worse_than_out_of_memory_is_what_is_shown() -> None:
    lost = {"times": {}, "primary": ""}
    run = changed(
        changed(both(), "triton", 0, status="oom", **lost),
        "triton",
        2,
        status="wrong",
        reason="off by 1",
        **lost,
    )
    assert sheet(run).failures[1] == "wrong: in process 3: off by 1"


def test_fewer_processes_than_asked_are_a_caveat() -> None:
    run = both(own=OWN[:2])
    assert [c.kind for c in entries_of(run)[1].caveats] == [FEWER]
    (note,) = (text for kind, text in sheet(run).footnotes if kind == FEWER)
    assert "2 of 3 processes measured the case" in note
    assert FEWER not in {c.kind for c in entries_of(both())[1].caveats}


def test_a_suite_in_several_processes_has_one_row_for_each_case() -> None:
    plain = replace(TOP, baseline="", processes=1)
    run = replace(both(own=OWN[:2]), header=plain)
    shown = sheet(run)
    # By hand, with t = 4.303 of three processes and 12.706 of two.
    assert cells(shown)["interval 3 processes"] == ("±28 %", "−51/+84 %")
    assert "pass" not in {column.head for column in shown.columns}
    (found,) = (c for e in entries_of(run) for c in e.caveats if c.kind == FEWER)
    assert "2 of 3 processes" in found.message
    assert "--resume" not in found.hint
    studied = replace(run, header=replace(plain, study="noise"))
    assert len(entries_of(studied)) == 5
    once = replace(run, records=tuple(r for r in run.records if not r.pass_index))
    assert [entry.processes for entry in entries_of(once)] == [1, 1]


def test_the_row_has_the_bytes_that_one_process_counted_of_the_same_kernels() -> None:
    counts = {"dram_read_bytes": 7e6, "dram_written_bytes": 1e6}
    kernels = (Kernel("gemm", 2),)
    run = replace(both(), records=tuple(replace(r, kernels=kernels) for r in both().records))
    run = changed(run, "triton", 1, counters=counts)
    assert entries_of(run)[1].record.counters == counts
    other = changed(run, "triton", 1, kernels=(Kernel("gemm_other"),))
    assert entries_of(other)[1].record.counters == {}
    assert NO_COUNTERS in {c.kind for c in entries_of(other)[1].caveats}


def test_the_doubts_of_all_processes_and_the_largest_error_are_shown() -> None:
    run = changed(
        both(), "triton", 2, caveats=(Caveat("slowed", "x", "y"),), check=Check(0.5, 1.0, 4)
    )
    (_, shown) = reduce_processes(run.records, 3)
    assert [c.kind for c in shown.record.caveats] == ["slowed"]
    assert shown.record.check is not None
    assert shown.record.check.error == 0.5


class Scripted:
    """A supervisor at the hardware's edge: it notes what it is asked, and may be interrupted."""

    deadline_s = 5.0

    def __init__(self, interrupted_at: int) -> None:
        self.told: list[str] = []
        self.interrupted_at = interrupted_at

    def renew(self) -> None:
        self.told.append("fresh")

    def measure(self, run: str, case: Any, *rest: Any, **more: Any) -> Record:
        if len(self.told) == self.interrupted_at:
            raise KeyboardInterrupt
        self.told.append(case.implementation + more["counting"][:2] + "j" * more["energy"])
        return replace(one("naive", 1e-3, 1e-3, 1e-3), case=case, run=run)


def test_the_first_process_measures_energy_under_a_sustained_load() -> None:
    sustained = replace(TOP.contract, cache="hot", regime="sustained")
    top = replace(TOP, plan=(one("naive", 1e-3).case,), energy=True, variants=(sustained,))
    supervisor: Any = Scripted(99)
    measure_cases(supervisor, None, top, schedule_of(top), lambda record: None)
    told = [word for word in supervisor.told if word != "fresh"]
    assert sorted(told[:2]) == ["naiveof", "naiveofj"]
    assert told[2:] == ["naiveof"] * 4


def test_the_energy_of_the_process_that_measured_it_is_shown() -> None:
    energy = Energy(refused="asked")
    (_, shown) = reduce_processes(changed(both(), "triton", 0, energy=energy).records, 3)
    assert shown.record.energy == energy


def test_processes_are_fresh_turned_and_one_that_is_interrupted_is_resumed(tmp_path: Path) -> None:
    cases = tuple(one(name, 1e-3).case for name in ("naive", "triton"))
    top = replace(TOP, run="r", plan=cases, counting="auto")
    supervisor: Any = Scripted(6)
    begun: list[str] = []
    with RunWriter(tmp_path / "run.jsonl") as writer:
        writer.header(top)
        with pytest.raises(KeyboardInterrupt):
            measure_cases(
                supervisor, writer, top, schedule_of(top), lambda record: None, begun.append
            )
    naive, triton = (case.id for case in cases)
    assert begun[:3] == [
        f"process {i} of 3: {x}" for i, x in ((1, naive), (1, triton), (2, triton))
    ]
    assert supervisor.told == ["naiveau", "tritonau", "fresh", "tritonof", "naiveof", "fresh"]
    run = read_run(tmp_path / "run.jsonl")
    assert [r.pass_index for r in run.records] == [0, 0, 1, 1]
    left = rest_of_schedule(run, Opened(top.device, top.fingerprint))
    assert [(case.implementation, index) for case, _, index in left] == [
        ("naive", 2),
        ("triton", 2),
    ]
    assert all(FEWER in {c.kind for c in entry.caveats} for entry in entries_of(run))


def test_the_next_time_is_told_where_earlier_processes_showed_their_scatter() -> None:
    samples = Samples(tuple(1e-3 * (1 + k / 1000) for k in (-1, 0, 1) * 10))
    noise = Noise(within=0.001, between=0.01, processes=20)
    found = next_interval(samples, noise)
    assert found is not None
    assert found[1] / samples.median_s - 1 == pytest.approx(2.093 * math.sqrt(2) * 0.01, rel=0.05)
    few = next_interval(samples, replace(noise, processes=3))
    assert few is not None
    assert few[1] > found[1]
    assert next_interval(samples, replace(noise, processes=1)) is None
    plain = replace(TOP, baseline="", processes=1)
    run = Run(plain, (replace(timed("torch", 0, 1e-3), noise=noise), timed("torch", 0, 2e-3)))
    shown = cells(sheet(run))
    assert shown["next time 95 %"] == ("±3.0 %", NOTHING)
    assert "interval one process" in shown
    lacking = replace(run, records=run.records[1:])
    assert "next time 95 %" not in cells(sheet(lacking))


# A workload whose fused implementation ends its worker in the second process that builds it.
FRAGILE = SAXPY.replace(
    '    """One pass over memory."""',
    '''    """One pass over memory."""
    import os, pathlib
    seen = pathlib.Path(__file__).with_name("seen")
    with seen.open("a") as file:
        print(os.getpid(), file=file)
    if len(set(seen.read_text().split())) == 2:
        os._exit(9)''',
)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine.at(tmp_path_factory.mktemp("processes"), plain=SAXPY, fragile=FRAGILE)


def compare(at: CommandLine, file: str, *words: str, out: str) -> Ended:
    return at("compare", f"./{file}.py", "--n", "256", *words, *QUICK, "--out", out)


def test_compare_measures_in_three_fresh_processes_unless_told_otherwise(at: CommandLine) -> None:
    ended = compare(at, "plain", out="three")
    assert ended.code == 0, ended.err
    run = read_run(at.run_file("three"))
    assert [(r.pass_index, r.case.implementation) for r in run.records] == [
        (0, "eager"),
        (0, "fused"),
        (1, "fused"),
        (1, "eager"),
        (2, "eager"),
        (2, "fused"),
    ]
    assert (run.header.processes, run.header.contract.precision) == (3, 0.017)
    assert run.header.contract.budget_s == 0.02
    assert "speed-up over eager" in ended.out and "3 processes" in ended.out
    assert "process 2 of 3: plain" in ended.err.replace("saxpy", "plain")
    alone = compare(at, "plain", "--processes", "1", "--format", "md", out="alone")
    assert "over eager, one process" in alone.out


def test_a_worker_that_dies_in_one_process_fails_its_case_until_it_is_resumed(
    at: CommandLine,
) -> None:
    ended = compare(at, "fragile", "--format", "json", out="fragile")
    assert ended.code == 3
    assert "1 of 2 cases failed" in ended.err
    rows = {row["implementation"]: row for row in json.loads(ended.out)["rows"]}
    assert rows["eager"]["status"] == "ok"
    assert (rows["fused"]["status"], rows["fused"]["speedup"]) == ("crashed", None)
    assert rows["fused"]["reason"].startswith("in process 2: ")
    path = at.run_file("fragile")
    again = at("roofline", "--resume", str(path), "--format", "json", "--device", "cpu")
    assert again.code == 0, again.err
    rows = {row["implementation"]: row for row in json.loads(again.out)["rows"]}
    assert (rows["fused"]["status"], rows["fused"]["processes"]) == ("ok", 3)
    assert rows["fused"]["speedup_low"] < rows["fused"]["speedup_high"]


def test_ctrl_c_in_the_second_process_keeps_the_first(at: CommandLine) -> None:
    words = ("compare", "./plain.py", "--n", "256", *QUICK, "--out", "stopped", "--format", "json")
    with at.start(*words) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("process 2 of 3"):
                os.kill(process.pid, signal.SIGINT)
                break
        out, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    run = read_run(at.run_file("stopped"))
    assert {r.pass_index for r in run.records} in ({0, 1}, {0, 1, 2})
    assert len(run.records) < 6
    assert json.loads(out)["rows"][0]["status"] == "ok"
