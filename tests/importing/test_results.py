"""Results of pytest-benchmark and NVBench as runs, which the gate keeps apart from its own."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, assert_refused
from synthetic import cpu_run, h200_run

from gpuperf.errors import UsageError
from gpuperf.gate.compare import incomparable
from gpuperf.importing import nvbench, pytest_benchmark, results
from gpuperf.importing.results import Results, begins_as_results, read_results
from gpuperf.run.store import read_run
from gpuperf.showing.exports import export_text

Read = Callable[..., Results]


def pytest_file(**changes: Any) -> dict[str, Any]:
    """A file with the fields that pytest-benchmark 5.3.1 writes."""
    first = {
        "group": None,
        "name": "test_sum[1-a]",
        "fullname": "tests/test_b.py::TestAll::test_sum[1-a]",
        "params": {"n": 1, "kind": "a"},
        "param": "1-a",
        "extra_info": {},
        "options": {"timer": "perf_counter", "min_rounds": 5, "warmup": False},
        "stats": {"median": 1.35e-6, "data": [1.6e-6, 0.9e-6, 1.5e-6, 1.2e-6], "iterations": 2},
    }
    second = {**first, "name": "test_max", "fullname": "test_c.py::test_max", "params": None}
    return {
        "machine_info": {"machine": "x86_64", "cpu": {"brand_raw": "AMD EPYC", "count": 2}},
        "commit_info": {"id": "unversioned"},
        "benchmarks": [first, second],
        "datetime": "2026-11-23T15:12:20+00:00",
        "version": "5.3.1",
        **changes,
    }


def summary(tag: str, **data: str) -> dict[str, Any]:
    return {
        "tag": tag,
        "data": [{"name": n, "type": "string", "value": v} for n, v in data.items()],
    }


def nvbench_file(**changes: Any) -> dict[str, Any]:
    """A file of NVBench's format 1.0.0, with a timed, a skipped and an untimed state."""
    axes = [
        {"name": "n", "type": "int64", "value": "4096"},
        {"name": "T", "type": "string", "value": "F32"},
    ]
    timed = {
        "name": "Device=0 n=2^12",
        "device": 0,
        "axis_values": axes,
        "summaries": [
            summary("nv/cold/sample_size", value="3"),
            summary("nv/cold/time/gpu/mean", value="2e-05"),
            summary("nv/cold/sm_clock_rate/mean", value="1.9e9"),
        ],
        "is_skipped": False,
    }
    skipped = {**timed, "summaries": None, "is_skipped": True, "skip_reason": "too large"}
    skipped["axis_values"] = [{"name": "n", "type": "int64", "value": "8192"}]
    untimed = {**timed, "summaries": []}
    return {
        "meta": {"argv": ["bench"], "version": {"nvbench": {"string": "0.2.0"}}},
        "devices": [{"id": 0, "name": "NVIDIA H200", "sm_version": 900, "number_of_sms": 132}],
        "benchmarks": [{"name": "copy", "states": [timed, skipped, untimed], "axes": []}],
        **changes,
    }


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a document from a file."""

    def read(document: Any, device_index: int | None = None) -> Results:
        file = tmp_path / "bench.json"
        file.write_text(document if isinstance(document, str) else json.dumps(document))
        return read_results(file, "run", device_index)

    return read


def test_the_rounds_of_a_test_are_samples_of_the_wall_timer(read: Read) -> None:
    found = read(pytest_file())
    first, second = found.records
    assert first.case.id == "test_sum/tests/test_b.py::TestAll[n=1,kind=a]"
    assert second.case.id == "test_max/test_c.py[]"
    assert first.samples is not None
    assert first.samples.values_s == (1.6e-6, 0.9e-6, 1.5e-6, 1.2e-6)
    assert first.samples.calls_per_window == 2
    assert (first.primary, first.contract.timer, first.contract.data) == ("wall", "wall", "own")
    assert first.cost is None
    (caveat,) = first.caveats
    assert caveat.kind == "imported"
    assert "read perf_counter on the host" in caveat.message
    assert found.device.name == "AMD EPYC"
    assert found.fingerprint.hard["timed by"] == "pytest-benchmark perf_counter"


def test_a_state_without_single_times_has_its_mean_with_a_caveat(read: Read) -> None:
    found = read(nvbench_file())
    timed, skipped = found.records
    assert timed.case.id == "copy/nvbench[n=4096,T=F32]"
    assert timed.samples is not None
    assert (timed.samples.values_s, timed.samples.windows) == ((2e-5,), 3)
    assert timed.samples.clock_hz == 1.9e9
    assert [caveat.kind for caveat in timed.caveats] == ["imported", "mean-only"]
    assert (skipped.status, skipped.reason) == ("skipped", "too large")
    assert found.left_out == "1 states without isolated times of a GPU are left out"
    assert (found.device.name, found.device.capability) == ("NVIDIA H200", "9.0")


def binary(folder: Path, name: str, values: tuple[float, ...]) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "0.bin").write_bytes(struct.pack(f"<{len(values)}f", *values))


def with_times(size: int = 3, filename: str = "bench.json-bin/0.bin") -> dict[str, Any]:
    document = nvbench_file()
    document["benchmarks"][0]["states"][0]["summaries"] += [
        summary(nvbench.TIMES_FILE, filename=filename, size=str(size)),
        summary(nvbench.CLOCKS_FILE, filename="bench.json-freqs-bin/0.bin", size=str(size)),
    ]
    return document


def test_single_times_and_clocks_are_read_beside_the_file(read: Read, tmp_path: Path) -> None:
    binary(tmp_path, "bench.json-bin", (1e-5, 2e-5, 3e-5))
    binary(tmp_path, "bench.json-freqs-bin", (1.5e9, 1.75e9, 2e9))
    for filename in ("bench.json-bin/0.bin", "/elsewhere/bench.json-bin/0.bin"):
        timed, _ = read(with_times(filename=filename)).records
        assert timed.samples is not None
        assert timed.samples.values_s == pytest.approx((1e-5, 2e-5, 3e-5))
        assert timed.samples.sm_clock_hz == (1.5e9, 1.75e9, 2e9)
        assert [caveat.kind for caveat in timed.caveats] == ["imported"]


def test_no_file_is_read_outside_the_folder(read: Read, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    binary(tmp_path, "secret", (1e-5, 2e-5, 3e-5))
    (inside / "linked").symlink_to(tmp_path / "secret")
    for filename in ("../secret/0.bin", "linked/0.bin", "/etc/passwd", "\0/0.bin", "0.bin", ""):
        file = inside / "bench.json"
        file.write_text(json.dumps(with_times(filename=filename)))
        timed, _ = read_results(file, "run").records
        assert timed.samples is not None
        assert timed.samples.values_s == (2e-5,)


def test_a_file_of_times_with_another_size_is_refused(read: Read, tmp_path: Path) -> None:
    binary(tmp_path, "bench.json-bin", (1e-5, 2e-5, 3e-5))
    with pytest.raises(UsageError, match="12 bytes for 4 samples"):
        read(with_times(4))
    binary(tmp_path, "bench.json-bin", (1e-5, float("nan"), 3e-5))
    with pytest.raises(UsageError, match="not a finite number"):
        read(with_times())
    with pytest.raises(UsageError, match="over 2,000,000 samples"):
        read(with_times(10**12))


def changed(**stats: Any) -> dict[str, Any]:
    document = pytest_file()
    document["benchmarks"][0]["stats"] |= stats
    return document


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (pytest_file(benchmarks=[]), "holds no benchmark"),
        (pytest_file(benchmarks=[{"name": "a", "stats": {}}]), "has no times of single rounds"),
        (pytest_file(benchmarks=7), "is not a whole result file of pytest-benchmark"),
        (changed(data=[1e-6, -1.0]), "has the time -1 s"),
        (changed(data=[1e-6, 0.0]), "has the time 0 s"),
        (changed(data=[1e-6, 1e300]), r"has the time 1e\+300 s"),
        (changed(data=["x"]), "is not a whole result file"),
        (json.dumps(changed()).replace("1.6e-06", "NaN"), "is not a whole result file"),
        (changed(iterations=0), "has 0 iterations"),
        (json.dumps(pytest_file())[:300], "is not a whole result file"),
        ('{"benchmarks":' + "[" * 100_000, "is not a whole result file"),
        (nvbench_file(benchmarks=None), "is not a whole result file of pytest-benchmark"),
        (nvbench_file(benchmarks=[{"name": "a", "states": []}]), "has no isolated times"),
    ],
)
def test_what_is_broken_or_impossible_is_refused_in_a_sentence(
    read: Read, document: Any, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        read(document)
    assert "\n" not in str(refused.value)
    assert refused.value.hint


def test_too_many_or_too_large_is_refused(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "LARGEST_FILE", 100)
    with pytest.raises(UsageError, match="it is over 100 bytes"):
        read(pytest_file())
    monkeypatch.undo()
    monkeypatch.setattr(pytest_benchmark, "MOST_RECORDS", 1)
    with pytest.raises(UsageError, match="over 1 benchmarks"):
        read(pytest_file())
    monkeypatch.setattr(nvbench, "MOST_RECORDS", 1)
    with pytest.raises(UsageError, match="over 1 states"):
        read(nvbench_file())


def test_one_of_several_devices_has_to_be_named(read: Read) -> None:
    document = nvbench_file()
    states, devices = document["benchmarks"][0]["states"], document["devices"]
    states.append({**states[0], "device": 1})
    devices.append({**devices[0], "id": 1, "name": "Quadro GP100"})
    with pytest.raises(UsageError, match="times of 2 devices") as refused:
        read(document)
    assert refused.value.hint == "--device-index 0 takes one"
    found = read(document, 1)
    assert (found.device.name, len(found.records)) == ("Quadro GP100", 1)
    with pytest.raises(UsageError, match="no isolated times of a GPU with the index 2"):
        read(document, 2)
    with pytest.raises(UsageError, match="is no file of NVBench"):
        read(pytest_file(), 0)


def test_hostile_names_are_cleaned_cut_and_distinct(read: Read) -> None:
    document = pytest_file()
    first = document["benchmarks"][0]
    name = "test]/\x1b[31m\u202e" + "x" * 5000
    hostile = {**first, "name": name, "fullname": f"a]b::{name}", "params": {"a=,]": [1], "b": 2}}
    document["benchmarks"] = [hostile, hostile, {**first, "params": {"n": 10**30}}]
    with pytest.raises(UsageError, match="beyond 2\\^64"):
        read(document)
    document["benchmarks"].pop()
    once, again = read(document).records
    assert once.case.id.isprintable()
    assert len(once.case.id) < 1000
    assert again.case.point["occurrence"] == 2
    assert once.case.point["a:;)"] == "(1)"


@pytest.mark.parametrize("name", ["pytest-benchmark", "nvbench"])
def test_an_export_of_gpuperf_is_not_taken_for_the_tools_own_times(read: Read, name: str) -> None:
    with pytest.raises(UsageError, match="was written by gpuperf"):
        read(export_text(h200_run(), name)[0])


def test_a_trace_does_not_begin_as_results_do(tmp_path: Path) -> None:
    for text, expected in (
        ('{"schemaVersion": 1, "traceEvents": []}', False),
        ('[{"ph": "X"}]', False),
        ('\n{ "benchmarks" : []}', True),
        (json.dumps(nvbench_file(), indent=2), True),
    ):
        (tmp_path / "file.json").write_text(text)
        assert begins_as_results(tmp_path / "file.json") is expected
    assert not begins_as_results(tmp_path)
    assert not begins_as_results(tmp_path / "absent.json")


def test_the_command_writes_a_run_that_the_gate_keeps_apart(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    (tmp_path / "bench.json").write_text(json.dumps(pytest_file()))
    done = command.within("import", "bench.json", "--out", "out")
    assert done.code == 0, done.err
    assert "test_sum" in done.out
    assert "roofline" not in done.err
    run = read_run(command.run_file("out"))
    assert [record.status for record in run.records] == ["ok", "ok"]
    reasons = " ".join(incomparable(cpu_run().header, run.header))
    assert "data is 'randn' and 'own'" in reasons
    assert "pytest-benchmark" in reasons
    assert incomparable(run.header, run.header) == []
    (tmp_path / "bench.json").write_text('{"benchmarks": 7}')
    assert_refused(command.within("import", "bench.json"), 2, "is not a whole result", "json")
