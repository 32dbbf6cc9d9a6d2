"""Runs in the formats of other tools, held to the fields that those tools read."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, assert_refused
from json_shapes import Maybe, Names, misfits
from measured import MEASURED, run_file
from synthetic import cpu_run, h200_run, hostile_run

from gpuperf.errors import CannotMeasure
from gpuperf.model.record import Run
from gpuperf.model.samples import Samples
from gpuperf.run.store import read_run
from gpuperf.showing.exports import EXPORTS, ShowFormat, export_text
from gpuperf.showing.pytest_benchmark import stats_of

TEXTS = Names(str)
# The columns of the table oss_ci_benchmark_v3 that a producer writes: numbers are whole but for a
# metric's, every value of an `extra_info` is a text.
PYTORCH = [
    {
        "benchmark": {"name": "gpuperf", "mode": str, "dtype": str, "extra_info": TEXTS},
        "model": {"name": str, "type": str, "backend": str, "origins": [str], "extra_info": TEXTS},
        "inputs": Names({"dtype": str, "extra_info": TEXTS}),
        "dependencies": Names({"version": str}),
        "runners": [
            {
                "name": str,
                "type": str,
                "cpu_info": Maybe(str),
                "avail_mem_in_gb": Maybe(int),
                "gpu_info": Maybe(str),
                "gpu_count": Maybe(int),
                "avail_gpu_mem_in_gb": Maybe(int),
                "extra_info": TEXTS,
            }
        ],
        "metric": {"name": str, "benchmark_values": [float], "extra_info": TEXTS},
    }
]
# NVBench's file format 1.0.0: values of a state and of a summary are texts with their type.
VALUE = {"name": str, "type": ("int64", "float64", "string"), "value": str}
AXIS = {"input_string": str, "description": str, "value": (int, str)}
NVBENCH = {
    "meta": {
        "argv": [str],
        "version": {
            "json": {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"},
            "gpuperf": {"string": str, "run": str},
        },
    },
    "devices": [
        {
            "id": int,
            "name": str,
            "sm_version": Maybe(int),
            "number_of_sms": int,
            "global_memory_size": int,
            "l2_cache_size": Maybe(int),
        }
    ],
    "benchmarks": [
        {
            "name": str,
            "index": int,
            "min_samples": int,
            "devices": [int],
            "axes": [{"name": str, "type": ("int64", "string"), "flags": str, "values": [AXIS]}],
            "states": [
                {
                    "name": str,
                    "min_samples": int,
                    "timeout": float,
                    "device": int,
                    "type_config_index": int,
                    "axis_values": [VALUE],
                    "summaries": [{"tag": str, "name": str, "hint": Maybe(str), "data": [VALUE]}],
                    "is_skipped": bool,
                    "skip_reason": Maybe(str),
                }
            ],
        }
    ],
}
# What pytest-benchmark 5.3.1 writes with --benchmark-json, and its `compare` reads.
ROUNDS = ("rounds", "iqr_outliers", "stddev_outliers", "iterations")
SECONDS = [
    "min",
    "max",
    "mean",
    "stddev",
    "median",
    "iqr",
    "q1",
    "q3",
    "ld15iqr",
    "hd15iqr",
    "total",
]
PYTEST = {
    "machine_info": {
        "node": str,
        "machine": str,
        "system": str,
        "python_version": str,
        "cpu": Names(str),
        "gpuperf": {"version": str, "run": str, "device": str},
    },
    "commit_info": {"id": str, "time": None, "dirty": bool},
    "benchmarks": [
        {
            "group": str,
            "name": str,
            "fullname": str,
            "params": Names((int, str)),
            "param": str,
            "extra_info": Names((str, [str])),
            "options": {
                "disable_gc": bool,
                "timer": str,
                "min_rounds": int,
                "max_time": float,
                "min_time": float,
                "warmup": bool,
            },
            "stats": {
                **dict.fromkeys(SECONDS, float),
                **dict.fromkeys(ROUNDS, int),
                "outliers": str,
                "ops": (float, None),
                "data": [float],
            },
        }
    ],
    "datetime": str,
    "version": "5.3.1",
}
SHAPES: dict[str, Any] = {"pytorch-v3": PYTORCH, "nvbench": NVBENCH, "pytest-benchmark": PYTEST}
RUNS = {
    "sweep": h200_run,
    "cpu": cpu_run,
    "hostile": hostile_run,
    **{
        name: lambda name=name: read_run(run_file(name))  # type: ignore[misc]
        for name in ("h200-compare-softmax-4k", "h200-profile-eager", "h200-matmul-data")
    },
}


def test_every_format_has_a_shape_and_a_place_in_the_help() -> None:
    assert set(EXPORTS) == set(SHAPES)
    assert {*EXPORTS, "table", "json", "csv", "md"} == {each.value for each in ShowFormat}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("run", RUNS)
def test_a_run_fits_the_format(name: str, run: str) -> None:
    text, _ = export_text(RUNS[run](), name)
    document = json.loads(text)
    assert misfits(document, SHAPES[name]) == []
    assert document


def test_the_shapes_refuse_what_does_not_fit() -> None:
    document = json.loads(export_text(cpu_run(), "nvbench")[0])
    document["benchmarks"][0]["states"][0]["axis_values"][0]["value"] = 64
    document["devices"][0]["speed"] = "high"
    del document["benchmarks"][0]["name"]
    assert sorted(misfits(document, NVBENCH)) == [
        "$.benchmarks[0] lacks 'name'",
        "$.benchmarks[0].states[0].axis_values[0].value is 64, not str",
        "$.devices[0] has the unknown key 'speed'",
    ]


@pytest.mark.parametrize("name", ["pytorch-v3", "pytest-benchmark"])
def test_records_without_a_time_are_left_out_and_counted(name: str) -> None:
    text, lacks = export_text(h200_run(), name)
    assert lacks == (
        f"5 records have no time and are left out, since {name} has times alone: "
        "1 oom, 1 wrong, 1 skipped, 1 crashed, 1 impossible"
    )
    assert "131072" not in text


def test_nvbench_has_records_without_a_time_as_skipped_states() -> None:
    text, lacks = export_text(h200_run(), "nvbench")
    assert lacks == ""
    (benchmark,) = json.loads(text)["benchmarks"]
    skipped = [state for state in benchmark["states"] if state["is_skipped"]]
    assert len(skipped) == 5
    assert skipped[0]["skip_reason"] == "oom: needs 103 GB, 24 GB free"
    assert skipped[0]["summaries"] == []


def test_a_run_without_any_time_is_refused() -> None:
    run = h200_run()
    failed = replace(run, records=tuple(r for r in run.records if r.status != "ok"))
    for name in ("pytorch-v3", "pytest-benchmark"):
        with pytest.raises(CannotMeasure, match="has no time that"):
            export_text(failed, name)


def test_a_metric_has_the_median_of_each_process() -> None:
    run = h200_run()
    first = run.records[0]
    twice = tuple(replace(first, pass_index=index) for index in (0, 1))
    metrics = json.loads(export_text(replace(run, records=twice), "pytorch-v3")[0])
    (time,) = [m["metric"] for m in metrics if m["metric"]["name"] == "time_s"]
    assert first.samples is not None
    assert time["benchmark_values"] == pytest.approx([first.samples.median_s] * 2)
    assert time["extra_info"]["unit"] == "s"


def test_the_mode_of_a_gradient_is_training() -> None:
    run = h200_run()
    first = run.records[0]
    case = replace(first.case, point={**first.case.point, "mode": "fwd+bwd"})
    metrics = json.loads(
        export_text(replace(run, records=(replace(first, case=case),)), "pytorch-v3")[0]
    )
    assert {metric["benchmark"]["mode"] for metric in metrics} == {"training"}


def test_numbers_that_are_not_finite_are_left_out() -> None:
    run = h200_run()
    first = run.records[0]
    zero = replace(first, times={"window": Samples((0.0,))}, primary="window")
    document = replace(run, records=(zero,))
    for name in EXPORTS:
        text, _ = export_text(document, name)
        assert "NaN" not in text
        assert "Infinity" not in text
        assert '"nan"' not in text
        assert '"inf"' not in text
        assert misfits(json.loads(text), SHAPES[name]) == []


def test_nvbench_keeps_apart_what_was_measured_otherwise() -> None:
    def tags(run: Run) -> set[str]:
        document = json.loads(export_text(run, "nvbench")[0])
        summaries = [
            summary
            for benchmark in document["benchmarks"]
            for state in benchmark["states"]
            for summary in state["summaries"]
        ]
        return {s["tag"].split("/")[1] for s in summaries if s["tag"].startswith("nv/")}

    run = h200_run()
    hot = tuple(replace(r, contract=replace(r.contract, cache="hot")) for r in run.records)
    assert tags(run) == {"cold"}
    assert tags(replace(run, records=hot)) == {"batch"}
    assert tags(cpu_run()) == {"cpu_only"}


def test_states_of_several_contracts_have_names_of_their_own() -> None:
    run = read_run(run_file("h200-matmul-data"))
    document = json.loads(export_text(run, "nvbench")[0])
    for benchmark in document["benchmarks"]:
        names = [state["name"] for state in benchmark["states"]]
        assert len(names) == len(set(names)) > 1
        assert any("data=zeros" in name for name in names)


@pytest.mark.parametrize(
    ("data", "q1", "q3", "outliers"),
    [
        # pytest-benchmark 5.3.1 gave these quartiles and outliers for the same rounds.
        ((3.0,), 3.0, 3.0, "0;0"),
        ((1.0, 2.0, 3.0, 10.0), 1.5, 6.5, "1;0"),
        ((1.0, 2.0, 3.0, 4.0, 5.0), 1.75, 4.25, "2;0"),
        ((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 70.0), 2.25, 5.75, "1;1"),
    ],
)
def test_the_statistics_are_those_of_pytest_benchmark(
    data: tuple[float, ...], q1: float, q3: float, outliers: str
) -> None:
    stats = stats_of(Samples(data, calls_per_window=3))
    assert (stats["q1"], stats["q3"], stats["outliers"]) == (q1, q3, outliers)
    assert stats["data"] == list(data)
    assert stats["iterations"] == 3
    assert stats["median"] == statistics.median(data)
    assert stats["total"] == math.fsum(data)


def test_the_command_prints_a_format_and_says_what_it_lacks(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    file = str(run_file("h200-compare-softmax-4k"))
    done = command.within("show", file, "--format", "pytest-benchmark")
    assert done.code == 0
    assert len(json.loads(done.out)["benchmarks"]) == 4
    assert "left out" not in done.err
    again = command.within("show", file, file, "--format", "nvbench")
    assert_refused(again, 2, "--format nvbench writes one run, not two", "name one run")
    (tmp_path / "two.jsonl").write_text(
        "".join(
            (MEASURED.parent.parent / "tests" / "golden" / f"run_schema_{n}.jsonl").read_text()
            for n in (9, 11)
        )
    )
    both = command.within("show", "two.jsonl", "--format", "pytorch-v3")
    assert_refused(both, 2, "holds 2 runs", "split the file")
