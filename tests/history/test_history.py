"""Test that the history of a case is what was measured, one segment for each environment."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from synthetic import HOSTILE, decoded
from synthetic_history import (
    BLOCKED,
    FIRST,
    HARD,
    MATMUL,
    SOFT,
    SOFTMAX,
    night,
    nights,
    record_of,
    run_of,
    write_run,
    write_runs,
)
from typer.testing import CliRunner

from gpuperf.errors import UnknownName, UsageError
from gpuperf.history.chart import draw_history
from gpuperf.history.command import history
from gpuperf.history.study import Series, readings_of, series_of, times_of, with_change_points
from gpuperf.history.table import render_list, render_show
from gpuperf.model.changepoints import LEAST, find_change_points
from gpuperf.model.record import Run
from gpuperf.model.workload import Case
from gpuperf.show.screen import stdout_screen

TORCH, TRITON = MATMUL.id, replace(MATMUL, implementation="triton").id
NEW_TORCH = {**SOFT, "torch": "2.12.0"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def told(runs: Sequence[Run], case: str = TORCH) -> Series:
    """The series of one case in *runs*, with its steps."""
    readings = [reading for run in runs for reading in readings_of(run) if reading.case.id == case]
    series = series_of(readings)
    (found,) = with_change_points(series, find_change_points(times_of(series)))
    return found


def single(name: str, when: datetime | None, median_s: float | None = 1e-3, **facts: Any) -> Run:
    """A run of one record."""
    return run_of(name, [record_of(name, MATMUL, when, median_s, **facts)])


def test_points_stand_in_the_order_of_their_dates_whatever_files_are_called() -> None:
    days = [3, 1, 2]
    runs = [single(f"run-{i}", FIRST + timedelta(days=day)) for i, day in enumerate(days)]
    points = [point for point, _ in told(runs).points]
    assert [point.run for point in points] == ["run-1", "run-2", "run-0"]


def test_dates_of_other_zones_are_one_time() -> None:
    east = replace(single("east", None).records[0], started="2026-03-01T05:30:00+05:00")
    naive = replace(single("naive", None).records[0], started="2026-03-01T00:15:00")
    zulu = replace(single("zulu", None).records[0], started="2026-03-01T00:45:00Z")
    series = told([run_of(r.run, [r]) for r in (zulu, east, naive)])
    assert [point.run for point, _ in series.points] == ["naive", "east", "zulu"]


def test_a_record_without_a_date_has_that_of_its_run() -> None:
    ((point, _),) = told([single("run", None)]).points
    assert point.when == FIRST


@pytest.mark.parametrize("date", ["", "yesterday", "0000-00-00", "9999-12-31T23:59:59-14:00"])
def test_what_has_no_date_is_left_out_and_counted(date: str) -> None:
    run = single("run", None)
    undated = Run(replace(run.header, created=date), run.records)
    series = told([undated, single("other", FIRST)])
    assert len(series.points) == 1
    assert series.left_out == {"no date": 1}


def test_processes_of_one_run_are_one_point() -> None:
    processes = (1.00, 1.02, 1.01, 1.08, 0.99)
    ((point, _),) = told([night(0, {"torch": 1e-3}, processes)]).points
    assert point.processes == 5
    assert point.median_s == pytest.approx(1.01e-3)
    assert (point.low_s, point.high_s) == pytest.approx((1.00e-3, 1.02e-3))


def test_of_one_process_the_samples_scatter() -> None:
    run = night(0, {"torch": 1e-3})
    ((point, _),) = told([run]).points
    samples = run.records[0].samples
    assert samples is not None
    assert (point.low_s, point.high_s) == (samples.quantile_s(0.25), samples.quantile_s(0.75))


def test_a_run_that_two_files_hold_counts_once() -> None:
    runs = nights(3)
    assert told([*runs, *runs]) == told(runs)


def test_cases_that_failed_are_counted_by_what_they_died_of() -> None:
    failed = [single(f"f{i}", FIRST, None, status="oom") for i in range(2)]
    series = told([*failed, single("odd", FIRST, 1e300), single("ok", FIRST)])
    assert dict(series.left_out) == {"oom": 2, "a time out of range": 1}
    assert len(series.points) == 1


@pytest.mark.parametrize("value", [0.0, -1e-3, 1e-300])
def test_a_median_that_is_no_time_is_left_out(value: float) -> None:
    record = record_of("run", MATMUL, FIRST, 1e-3)
    samples = replace(record.times["window"], values_s=(value,) * 9)
    series = told([run_of("run", [replace(record, times={"window": samples})])])
    assert (series.segments, dict(series.left_out)) == ((), {"a time out of range": 1})


# Segments.


def changes(series: Series) -> list[tuple[int, tuple[str, ...]]]:
    return [(len(segment.points), segment.changed) for segment in series.segments]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"soft": NEW_TORCH}, "torch 2.11.0 → 2.12.0"),
        ({"soft": {**SOFT, "driver": "590.1"}}, "driver 580.159 → 590.1"),
        ({"hard": {**HARD, "power_limit_w": 600.0}}, "power_limit_w 700 → 600"),
        ({"hard": {**HARD, "product": "NVIDIA H100"}}, "product NVIDIA H200 → NVIDIA H100"),
        ({"hard": {**HARD, "workload_version": 2}}, "workload_version 1 → 2"),
        ({"hard": {**HARD, "ecc": True}}, "ecc unknown → True"),
        ({"contract": replace(BLOCKED, cache="hot")}, "cache cold → hot"),
        ({"contract": replace(BLOCKED, gap_s=0.02)}, "gap_s 0.01 → 0.02"),
        ({"world": 8}, "world 1 → 8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_environment_is_another_segment(facts: dict[str, Any], words: str) -> None:
    series = told([*nights(4), *nights(3, first=4, **facts)])
    assert changes(series) == [(4, ()), (3, (words,))]


def test_facts_of_the_pass_make_no_segment() -> None:
    run = night(1, {"torch": 1e-3})
    live = replace(run.records[0].fingerprint, live={"temperature_c": 71})
    warm = Run(run.header, tuple(replace(r, fingerprint=live) for r in run.records))
    assert changes(told([night(0, {"torch": 1e-3}), warm])) == [(2, ())]


def test_what_a_device_does_not_say_is_as_if_it_said_nothing() -> None:
    series = told([*nights(2), *nights(2, first=2, hard={**HARD, "ecc": None})])
    assert changes(series) == [(4, ())]


def test_contracts_measured_side_by_side_are_two_segments() -> None:
    hot = replace(BLOCKED, cache="hot")
    runs = []
    for number in range(12):
        cold = night(number, {"torch": 1e-3})
        warm = night(number, {"torch": 0.6e-3}, contract=hot).records
        runs.append(Run(cold.header, (*cold.records, *warm)))
    series = told(runs)
    assert changes(series) == [(12, ()), (12, ("cache cold → hot",))]
    assert not any(segment.change_points for segment in series.segments)


def test_a_driver_that_was_rolled_back_continues_its_segment() -> None:
    runs = [*nights(5), *nights(2, first=5, soft=NEW_TORCH), *nights(4, first=7)]
    assert changes(told(runs)) == [(9, ()), (2, ("torch 2.11.0 → 2.12.0",))]
    assert len(told(runs).points[-1][1].points) == 9


def test_what_changed_is_told_from_the_nearest_environment() -> None:
    """A new torch on the machine with the hot cache is not told as another cache."""
    hot = replace(BLOCKED, cache="hot")
    runs = [
        *nights(2),
        *nights(2, first=2, contract=hot),
        *nights(2, first=4, soft=NEW_TORCH),
        *nights(2, first=6, contract=hot, soft=NEW_TORCH),
    ]
    found = [changed for _, changed in changes(told(runs))]
    torch = ("torch 2.11.0 → 2.12.0",)
    assert found == [(), ("cache cold → hot",), torch, torch]


def test_no_step_is_sought_across_environments() -> None:
    series = told(
        [
            *nights(20, noise=0.001),
            *nights(20, first=20, soft=NEW_TORCH, step_at=0, change=0.16, noise=0.001),
        ]
    )
    assert [segment.change_points for segment in series.segments] == [(), ()]


def test_a_step_is_told_with_the_runs_on_either_side() -> None:
    runs = nights(40, step_at=25)
    (segment,) = told(runs).segments
    (step,) = segment.change_points
    assert step.at == 25
    assert segment.points[25].run == runs[25].header.run
    assert step.low < 0.03 < step.high
    assert segment.levels() == ((0, 25), (25, 40))
    assert told(runs, TRITON).segments[0].change_points == ()


def test_the_change_of_a_segment_is_of_its_ends() -> None:
    (segment,) = told(nights(40, step_at=25, noise=0.0)).segments
    assert segment.change == pytest.approx(0.03)
    assert told(nights(7)).segments[0].change is None


def moved(hosts: Sequence[str]) -> list[bool]:
    """Of 40 nights with a step at the 25th, whether it is told to be between hosts."""
    runs = [
        night(i, {"torch": 1e-3 * (1.03 if i >= 25 else 1) * (1 + 1e-4 * (i * 7 % 5))}, host=host)
        for i, host in enumerate(hosts)
    ]
    (segment,) = told(runs).segments
    return [segment.moved(step) for step in segment.change_points]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["a"] * 25 + ["b"] * 15, True),
        (["a"] * 40, False),
        (["a", "b"] * 20, False),
        ([f"h{i}" for i in range(40)], True),
        ([""] * 40, False),
        ([""] * 25 + ["b"] * 15, False),
    ],
    ids=["moved", "stayed", "in turn", "a new one each night", "unknown", "unknown before"],
)
def test_a_step_to_another_host_says_so(hosts: Sequence[str], expected: bool) -> None:
    assert moved(hosts) == [expected]


# Reports.


def both(runs: Sequence[Run]) -> tuple[Series, ...]:
    return tuple(told(runs, case) for case in (TORCH, TRITON))


CHANGED = [*nights(30, step_at=20), *nights(6, first=30, soft=NEW_TORCH)]


def test_the_list_has_a_line_a_case() -> None:
    lines = render_list(both(CHANGED), "table").splitlines()
    assert lines[0].split() == [
        "case",
        "points",
        "first",
        "last",
        "segments",
        "time",
        "trend",
        "significant",
        "changes",
    ]
    torch = re.split(r"\s{2,}", lines[2].strip())
    assert torch[:5] == ["matmul/torch m=n=k=4096", "36", "2026-03-01", "2026-04-05", "2"]
    assert torch[6] == "–", "the last segment has too few points for a change"
    assert re.fullmatch(r"2026-03-21 \+[23]\.\d %", torch[7])
    assert lines[3].endswith("none")


@pytest.mark.parametrize("format", ["table", "md"])
def test_a_case_that_was_never_measured_has_no_line_in_the_list(format: str) -> None:
    skipped = Series(Case("softmax", "triton", {"n": 64}), (), {"skipped": 3})
    lines = render_list([*both(CHANGED), skipped], format).splitlines()
    named = [line for line in lines if "softmax" in line]
    assert len(named) == 1
    assert "3 × skipped" in named[0]
    text = "\n".join(lines)
    assert "cases without a point, not listed: 1" in text
    assert "softmax" in render_list([skipped], "json")


@pytest.mark.parametrize("format", ["json", "csv"])
def test_the_list_is_data(format: str) -> None:
    text = render_list(both(CHANGED), format)
    rows: list[dict[str, Any]] = (
        json.loads(text) if format == "json" else list(csv.DictReader(io.StringIO(text)))
    )
    assert [row["case"] for row in rows] == [TORCH, TRITON]
    assert [int(row["steps"]) for row in rows] == [1, 0]
    assert float(rows[0]["last_step_change"]) == pytest.approx(0.03, abs=0.01)
    assert not rows[1]["last_step_change"]


def test_one_case_is_shown_with_points_segments_and_steps() -> None:
    text = render_show(told(CHANGED), "table")
    assert text.startswith(f"{TORCH}\n")
    assert CHANGED[19].header.run in text
    assert "torch 2.11.0 → 2.12.0" in text
    assert re.search(r"2026-03-21 +\+[23]\.\d % ", text)
    assert "one segment at a false discovery rate of 1 %" in text


def test_a_step_to_another_host_is_marked_everywhere(tmp_path: Path) -> None:
    runs = [*nights(20, host="one"), *nights(20, step_at=20, first=20, seed=2, host="two")]
    series = told(runs)
    assert re.search(r"\+[23]\.\d % †", render_show(series, "table"))
    assert re.search(r"\+[23]\.\d % †", render_list([series], "table"))
    assert all(
        "of another host" in text
        for text in (render_show(series, "table"), render_list([series], "md"))
    )
    value = json.loads(render_show(series, "json"))
    assert value["segments"][0]["steps"][0]["another_host"] is True
    assert json.loads(render_list([series], "json"))[0]["last_step_another_host"] is True
    draw_history(series, [tmp_path / "trend.svg"])
    assert "of another host" in (tmp_path / "trend.svg").read_text(encoding="utf-8")


def test_one_step_of_several_to_another_host_is_marked_in_the_chart(tmp_path: Path) -> None:
    """The first step stays on its host, the second does not."""
    runs = [
        *nights(40, step_at=20, host="one"),
        *nights(20, step_at=40, change=0.09, first=40, seed=2, host="two"),
    ]
    series = told(runs)
    steps = [segment.moved(step) for segment in series.segments for step in segment.change_points]
    assert steps == [False, True]
    draw_history(series, [tmp_path / "trend.svg"])
    assert "of another host" in (tmp_path / "trend.svg").read_text(encoding="utf-8")


def test_one_case_is_data_as_csv_and_json() -> None:
    rows = list(csv.DictReader(io.StringIO(render_show(told(CHANGED), "csv"))))
    assert len(rows) == 36
    (step,) = (row for row in rows if row["step_change"])
    assert step["run"] == CHANGED[20].header.run
    assert float(step["step_q"]) <= 0.01
    value = json.loads(render_show(told(CHANGED), "json"))
    assert [len(segment["points"]) for segment in value["segments"]] == [30, 6]
    assert value["segments"][0]["steps"][0]["run_before"] == CHANGED[19].header.run
    assert value["segments"][1]["environment"]["torch"] == "2.12.0"


def test_a_long_table_says_what_it_leaves_out() -> None:
    text = render_show(told(nights(60)), "table")
    assert "20 earlier points" in text
    assert render_show(told(nights(60)), "csv").count("\n") == 61


def test_a_case_in_one_run_only_is_shown_without_a_test() -> None:
    series = told(nights(1))
    assert "no segment has 12 points" in render_show(series, "table")
    assert render_list([series], "table").splitlines()[2].endswith("–")


def test_a_case_that_always_failed_is_shown() -> None:
    series = told([single(f"f{i}", FIRST, None, status="oom") for i in range(3)])
    assert "3 × oom" in render_show(series, "table")
    assert "3 × oom" in render_list([series], "md")
    assert json.loads(render_list([series], "json"))[0]["left_out"] == 3
    assert json.loads(render_show(series, "json"))["left_out"] == {"oom": 3}
    heads = render_show(told(nights(1)), "csv").splitlines()[0]
    assert render_show(series, "csv").splitlines() == [heads]


def hostile() -> Series:
    """Everything that a stranger names is hostile."""
    case = replace(MATMUL, op=HOSTILE, implementation="../../x")
    soft = {HOSTILE: HOSTILE}
    runs = [
        run_of(
            f"{HOSTILE}{i}",
            [
                record_of(
                    f"{HOSTILE}{i}",
                    case,
                    FIRST + timedelta(days=i),
                    1e-3 * (1 + (i > 15) / 9),
                    soft=soft if i > 3 else {},
                )
            ],
        )
        for i in range(30)
    ]
    failed = record_of("f", case, FIRST, None, status="error", reason=HOSTILE)
    runs = [decoded(run) for run in (*runs, run_of("f", [failed]))]
    return told(runs, runs[0].records[0].case.id)


@pytest.mark.parametrize("format", ["table", "md", "json", "csv"])
def test_a_hostile_name_steers_no_terminal_and_no_markdown(format: str) -> None:
    for text in (render_list([hostile()], format), render_show(hostile(), format)):
        assert "\x1b" not in text
        assert "\u202e" not in text
        if format == "md":
            assert "<script" not in text
            rows = [line for line in text.splitlines() if line.startswith("|")]
            assert all(len(re.findall(r"(?<!\\)\|", row)) in (8, 9) for row in rows)


# The chart.


def svg(series: Series, tmp_path: Path) -> str:
    path = tmp_path / "chart.svg"
    draw_history(series, [path])
    return path.read_text(encoding="utf-8")


def test_the_chart_tells_steps_and_environments(tmp_path: Path) -> None:
    text = svg(told(CHANGED), tmp_path)
    assert TORCH in text
    assert "torch 2.11.0 → 2.12.0" in text
    assert re.search(r">\+[23]\.\d %<", text)
    assert "slower from 2026-03-21 on" in text
    assert "NVIDIA H200 · blocked timer · cold cache" in text


def test_the_chart_of_few_runs_of_one_day_says_so(tmp_path: Path) -> None:
    whens = [FIRST + timedelta(minutes=15 * i) for i in range(5)]
    text = svg(told([single(f"r{i}", when) for i, when in enumerate(whens)]), tmp_path)
    assert f"5 runs: too few to search for changes, as {LEAST} of one environment" in text
    assert "no significant change" not in text
    assert f"{whens[0]:%Y-%m-%d %H:%M} … {whens[-1]:%Y-%m-%d %H:%M}, UTC" in text


def test_the_same_series_is_the_same_picture(tmp_path: Path) -> None:
    assert svg(told(CHANGED), tmp_path) == svg(told(CHANGED), tmp_path)


def test_a_chart_is_a_png_too(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    draw_history(told(CHANGED), [path])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_environments_side_by_side_have_a_panel_each(tmp_path: Path) -> None:
    hot = replace(BLOCKED, cache="hot")
    old = {**HARD, "product": "NVIDIA A100"}
    runs = []
    for number in range(14):
        cold = night(number, {"torch": 1e-3})
        more = (
            *night(number, {"torch": 6e-4}, contract=hot).records,
            *night(number, {"torch": 2e-3}, hard=old).records,
        )
        runs.append(Run(cold.header, (*cold.records, *more)))
    text = svg(told(runs), tmp_path)
    assert text.count("time, ") == 3
    assert "cache hot" in text
    assert "product NVIDIA A100" in text


def test_environments_beyond_the_panels_are_counted(tmp_path: Path) -> None:
    runs = [
        run for i in range(7) for run in nights(3, contract=replace(BLOCKED, warmup_calls=i + 1))
    ]
    assert "3 more environments are not drawn" in svg(told(runs), tmp_path)


def test_dates_that_bunch_make_way_for_numbers_of_runs(tmp_path: Path) -> None:
    whens = [FIRST + timedelta(days=30 * (i // 10), minutes=i) for i in range(30)]
    text = svg(told([single(f"r{i:02}", when) for i, when in enumerate(whens)]), tmp_path)
    assert re.search(r">run \d+<", text)
    assert ">Apr<" in svg(told(nights(60)), tmp_path)


@pytest.mark.parametrize(
    "whens",
    [
        [FIRST],
        [FIRST, FIRST],
        [FIRST, FIRST.replace(year=9999)],
        [FIRST.replace(year=1), FIRST],
        [FIRST + timedelta(seconds=i) for i in range(20)],
        [FIRST + timedelta(days=3000 * i) for i in range(4)],
    ],
    ids=["one point", "one date", "year 9999", "year 1", "seconds", "decades"],
)
def test_odd_dates_are_drawn(whens: Sequence[datetime], tmp_path: Path) -> None:
    text = svg(told([single(f"r{i}", when) for i, when in enumerate(whens)]), tmp_path)
    assert text.rstrip().endswith("</svg>")


def test_a_machine_that_alternates_is_drawn_with_few_lines(tmp_path: Path) -> None:
    runs = [night(i, {"torch": 1e-3}, soft=SOFT if i % 2 else NEW_TORCH) for i in range(40)]
    text = svg(told(runs), tmp_path)
    assert text.count("torch 2.12.0 → 2.11.0") == 1
    assert text.count(">torch 2.11.0<") == 1, "the legend tells them apart"


def test_a_far_outlier_is_drawn_at_the_edge_with_its_figure(tmp_path: Path) -> None:
    runs = [*nights(20), night(20, {"torch": 360e-6})]
    assert re.search(r">\+(99|100|101) %<", svg(told(runs), tmp_path))


def test_hostile_names_break_no_picture(tmp_path: Path) -> None:
    import xml.etree.ElementTree as tree

    text = svg(hostile(), tmp_path)
    tree.fromstring(text)
    assert "<script" not in text


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    series = told([single("f", FIRST, None, status="oom")])
    with pytest.raises(UsageError, match="nothing to draw"):
        draw_history(series, [tmp_path / "chart.png"])


# The command line.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_runs(tmp_path / "runs", CHANGED)


def run(*words: str | Path) -> tuple[str, str]:
    """stdout and stderr of `gpuperf history` with *words*."""
    done = CliRunner().invoke(history, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout, done.stderr


def test_history_list_tells_every_case(folder: Path) -> None:
    out, err = run("list", "--folder", folder)
    assert out == render_list(
        with_change_points(both_plain(CHANGED), find_change_points(times_of(both_plain(CHANGED)))),
        "table",
        stdout_screen(),
    )
    assert err == ""


def both_plain(runs: Sequence[Run]) -> tuple[Series, ...]:
    return series_of(reading for run in runs for reading in readings_of(run))


@pytest.mark.parametrize(
    "name",
    [
        *(TORCH, "matmul/torch m=n=k=4096", "torch", "mat torch", "/torch[m=4096"),
        *("torch m=n=k=4096", "/torch m=n"),
    ],
)
def test_history_show_finds_a_case_by_its_id_its_name_or_a_part(folder: Path, name: str) -> None:
    assert run("show", name, "--folder", folder)[0].startswith(TORCH)


def test_an_id_that_is_a_part_of_another_is_that_id(tmp_path: Path) -> None:
    names = [night(i, {"torch": 1e-3, "torch_compile": 1e-3}) for i in range(2)]
    longer = replace(MATMUL, op="matmul/torch[m=4096,n=4096,k=4096,dtype=bf16]x")
    extra = run_of("x", [record_of("x", longer, FIRST, 1e-3)])
    folder = write_runs(tmp_path / "runs", [*names, extra])
    assert run("show", TORCH, "--folder", folder)[0].startswith(f"{TORCH}\n")


def test_a_part_of_several_cases_is_refused_with_their_names(folder: Path) -> None:
    with pytest.raises(UsageError, match="'matmul' matches 2 cases") as caught:
        run("show", "matmul", "--folder", folder)
    assert "matmul/torch m=n=k=4096, matmul/triton m=n=k=4096" in caught.value.hint


def test_a_part_of_none_is_refused_with_the_nearest(folder: Path) -> None:
    with pytest.raises(UnknownName, match=r"no case 'matmul/tritn'; did you mean 'matmul/triton"):
        run("show", "matmul/tritn", "--folder", folder)
    with pytest.raises(UnknownName, match="no case ''"):
        run("show", "", "--folder", folder)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    for words in (("list",), ("show", "matmul")):
        with pytest.raises(UsageError, match="holds no run file"):
            run(*words, "--folder", tmp_path)
        with pytest.raises(UsageError, match="is not a folder"):
            run(*words, "--folder", tmp_path / "nowhere")
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="holds no case in 1 files"):
        run("list", "--folder", tmp_path)


def test_what_was_passed_over_is_said_on_stderr_in_few_words(folder: Path) -> None:
    for i in range(20):
        (folder / f"\x1b[31m{i}.jsonl").write_text("no run\n")
    out, err = run("list", "--folder", folder)
    assert "\x1b" not in out + err
    assert err.count("skipped") == 9
    assert "12 more" in err


def test_history_show_draws(folder: Path, tmp_path: Path) -> None:
    chart = tmp_path / "trend.svg"
    _, err = run("show", "torch", "--folder", folder, "--chart", chart)
    assert "trend.svg" in err
    assert "torch 2.11.0 → 2.12.0" in chart.read_text(encoding="utf-8")


def test_a_chart_that_cannot_be_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"charts do not have the suffix '\.gif'"):
        run("show", "x", "--folder", tmp_path / "nowhere", "--chart", tmp_path / "x.gif")


def test_a_new_run_is_in_the_next_list(folder: Path) -> None:
    assert " 36 " in run("list", "--folder", folder)[0]
    write_run(folder / "new.jsonl", night(50, {"torch": 1e-3}))
    assert " 37 " in run("list", "--folder", folder)[0]


def test_cases_of_several_workloads_are_told_apart(tmp_path: Path) -> None:
    runs = nights(3)
    when = FIRST + timedelta(hours=1)
    other = run_of("softmax", [record_of("softmax", SOFTMAX, when, 1e-4)])
    folder = write_runs(tmp_path / "runs", [*runs, other])
    rows = json.loads(run("list", "--folder", folder, "--format", "json")[0])
    assert [row["points"] for row in rows] == [3, 3, 1]


def test_steps_that_were_found_are_not_sought_again(folder: Path, cache: Path) -> None:
    """The second list needs no SciPy, which alone takes a second to import."""
    code = (
        "import sys\n"
        "from gpuperf.history.command import history\n"
        f"history(['list', '--folder', {str(folder)!r}], standalone_mode=False)\n"
        "print('scipy' in sys.modules)"
    )
    env = {**os.environ, "GPUPERF_CACHE": str(cache)}

    def listed() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
        )
        return done.stdout.splitlines()

    first, second = listed(), listed()
    assert (first[-1], second[-1]) == ("True", "False")
    assert first[:-1] == second[:-1]
    (kept,) = (cache / "changes").iterdir()
    kept.write_text("{}")
    assert listed() == first


def test_a_list_of_three_hundred_runs_is_there_at_once(tmp_path: Path) -> None:
    names = {f"impl{i}": 1e-4 * (i + 1) for i in range(20)}
    folder = write_runs(tmp_path / "runs", (night(i, names) for i in range(300)))
    run("list", "--folder", folder)
    started = time.process_time()
    out, _ = run("list", "--folder", folder)
    assert time.process_time() - started < 1.5
    assert out.count(" 300 ") == 20


def test_no_figure_is_infinite_or_no_number(tmp_path: Path) -> None:
    runs = [
        single(f"r{i:02}", FIRST + timedelta(days=i), 1e-9 if i < 15 else 1e6) for i in range(30)
    ]
    value = json.loads(render_show(told(runs), "json"))
    (step,) = value["segments"][0]["steps"]
    assert math.isfinite(step["step_change"])
    draw_history(told(runs), [tmp_path / "x.svg"])
