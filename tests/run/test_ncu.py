"""Nsight Compute as a second source: a program that stands in for `ncu` prints what it prints."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from measured import TESTS
from synthetic import h200_device, header

from gpuperf.errors import CannotMeasure
from gpuperf.measure import ncu_target
from gpuperf.model.contract import Contract
from gpuperf.model.metrics import KERNEL, choose
from gpuperf.model.protocol import Measure
from gpuperf.model.record import Kernel, Record
from gpuperf.model.workload import Case
from gpuperf.run import ncu, session
from gpuperf.run.ncu import Ncu, find_ncu, read_csv, with_ncu
from gpuperf.run.runfile import RunWriter
from gpuperf.run.store import read_run

COLD = Contract("blocked")
CASE = Case("copy", "torch", {"n": 1024, "dtype": "fp32"})
REQUEST = Measure("r", CASE, COLD, 7)
RECORD = Record("r", CASE, COLD, "ok", kernels=(Kernel("seen by torch"), Kernel("Memset (Device)")))

# The raw page: a head, a line of units, a line a kernel; numbers may have commas.
PAGE = """==PROF== Connected to process 7
==PROF== Disconnected from process 7
"ID","Process ID","Kernel Name","Context","dram__bytes_read.sum","dram__bytes_write.sum","l2.sum"
"","","","","byte","byte","byte"
"0","7","void add<float>(int, float *)","1","4,194,304","1048576.0","n/a"
"1","7","gemm","1","100","50","7e3"
"""

FAKE = """#!{python}
import json, os, sys, time
state = json.load(open({state!r}))
arguments = sys.argv[1:]
json.dump([*json.load(open({log!r})), arguments], open({log!r}, "w"))
if "--query-metrics" in arguments:
    print("Device NVIDIA H200")
    for name in state["metrics"]:
        print(name, "  byte   # of bytes")
    sys.exit(state.get("query_code", 0))
time.sleep(state.get("sleep", 0))
print(state.get("said", ""))
if state.get("page"):
    open(arguments[arguments.index("--log-file") + 1], "w").write(state["page"])
sys.exit(state.get("code", 0))
"""


class Program:
    """A `ncu` in a folder of its own, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.state, self.log = folder / "state.json", folder / "log.json"
        self.path = folder / "ncu"
        told = FAKE.format(python=sys.executable, state=str(self.state), log=str(self.log))
        self.path.write_text(told)
        self.path.chmod(0o755)
        self.log.write_text("[]")

    def says(self, **state: Any) -> Ncu:
        self.state.write_text(json.dumps({"metrics": GH100, **state}))
        return Ncu(self.path, 20.0)

    @property
    def asked(self) -> list[list[str]]:
        found: list[list[str]] = json.loads(self.log.read_text())
        return found


TABLE = json.loads((TESTS / "data" / "cupti_metrics.json").read_text())
GH100 = TABLE["GH100"]["ranges"]["metrics"]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def page_of(*kernels: tuple[str, dict[str, float]]) -> str:
    names = [name for group in choose(KERNEL, GH100).values() for name in group]
    head = ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *names))
    lines = [
        ",".join(f'"{cell}"' for cell in (i, name, *(counts.get(n, 0) for n in names)))
        for i, (name, counts) in enumerate(kernels)
    ]
    return "\n".join(["==PROF== x", head, ",".join('""' for _ in (1, 2, *names)), *lines]) + "\n"


def test_the_raw_page_is_read_without_its_units_and_its_talk() -> None:
    names = ["dram__bytes_read.sum", "dram__bytes_write.sum"]
    assert read_csv(PAGE, names) == [
        ("void add<float>(int, float *)", [4194304.0, 1048576.0]),
        ("gemm", [100.0, 50.0]),
    ]


def test_a_value_that_is_no_number_is_unknown() -> None:
    ((_, (first,)), (_, (second,))) = read_csv(PAGE, ["l2.sum"])
    assert first != first
    assert second == 7000
    ((_, (absent,)), _) = read_csv(PAGE, ["no.sum"])
    assert absent != absent
    assert read_csv("", ["l2.sum"]) == read_csv("==ERROR== no", ["l2.sum"]) == []


def test_each_kernel_is_counted_by_the_metrics_of_this_chip(program: Program) -> None:
    counts = {
        "dram__bytes_read.sum": 4e6,
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 2e9,
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum": 5.0,
    }
    by_ncu = program.says(page=page_of(("gemm", counts), ("add", {})))
    (first, counted), (second, _) = by_ncu.count(REQUEST, "cuda:0")
    assert (first, second) == ("gemm", "add")
    assert counted["dram_read_bytes"] == 4e6
    assert counted["tensor_bf16"] == 2e9
    assert counted["fp32_flops"] == 10
    by_ncu.count(REQUEST, "cuda:0")
    queries = [a for a in program.asked if "--query-metrics" in a]
    assert len(queries) == 1


def test_the_clock_is_left_alone_and_the_cache_is_as_the_contract_has_it(program: Program) -> None:
    by_ncu = program.says(page=page_of(("k", {})))
    for contract, control in (
        (COLD, "all"),
        (replace(COLD, cache="hot"), "none"),
        (replace(COLD, cache="hot", regime="sustained"), "none"),
    ):
        by_ncu.count(replace_contract(REQUEST, contract), "cuda:1")
        asked = program.asked[-1]
        assert asked[asked.index("--clock-control") + 1] == "none"
        assert asked[asked.index("--cache-control") + 1] == control
        assert asked[asked.index("--profile-from-start") + 1] == "off"
        assert asked[-1] == "cuda:1"
        assert "gpuperf.measure.ncu_target" in asked


def replace_contract(request: Measure, contract: Contract) -> Measure:
    return msgspec.structs.replace(request, contract=contract)


@pytest.mark.parametrize(
    ("state", "said", "hint"),
    [
        ({"page": "==ERROR== ERR_NVGPUCTRPERM - the user does not"}, "may not read", "SYS_ADMIN"),
        ({"said": "==ERROR== ERR_NVGPUCTRPERM"}, "may not read", "SYS_ADMIN"),
        ({"said": "RuntimeError: boom"}, "recorded no kernel: RuntimeError: boom", ""),
        ({}, "recorded no kernel: no output", ""),
        ({"metrics": []}, "no counters for this device", ""),
        ({"page": PAGE, "code": 9}, "failed with exit code 9: it printed nothing", ""),
        (
            {"page": PAGE, "said": "==ERROR== Failed to profile gemm"},
            "failed with exit code 0: ==ERROR== Failed to profile gemm",
            "",
        ),
        (
            {
                "page": PAGE + "==ERROR== The application returned an error code (1).\n",
                "code": 1,
                "said": "Traceback:\nValueError: boom",
            },
            r"code 1: ==ERROR== The application .* \(1\).; ValueError: boom",
            "",
        ),
        ({"query_code": 2}, "failed with exit code 2", ""),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    program: Program, state: dict[str, Any], said: str, hint: str
) -> None:
    with pytest.raises(CannotMeasure, match=said) as refused:
        program.says(**state).count(REQUEST, "cuda:0")
    assert hint in refused.value.hint


def test_a_program_that_hangs_is_ended_at_the_deadline(program: Program) -> None:
    program.says(sleep=60)
    began = time.monotonic()
    with pytest.raises(CannotMeasure, match="had not ended after 1 s"):
        Ncu(program.path, 1.0).count(REQUEST, "cuda:0")
    assert time.monotonic() - began < 15


def test_the_program_is_found_on_the_path_or_beside_cuda(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ncu() == program.path
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(ncu, "PLACES", (str(tmp_path.parent),))
    found = find_ncu()
    assert found.name == "ncu"
    assert os.access(found, os.X_OK)
    monkeypatch.setattr(ncu, "PLACES", ())
    with pytest.raises(CannotMeasure, match="there is no program `ncu`"):
        find_ncu()


def test_the_record_has_the_kernels_and_their_sums() -> None:
    found = [
        ("add", {"dram_read_bytes": 5.0, "cycles": 9.0}),
        ("gemm", {"dram_read_bytes": 1.0}),
        ("add", {"dram_read_bytes": 7.0, "cycles": 1.0}),
    ]
    record = with_ncu(RECORD, found)
    assert record.counters == {"dram_read_bytes": 13.0}
    assert record.kernels == (
        Kernel("add", 2, {"dram_read_bytes": 12.0, "cycles": 10.0}),
        Kernel("gemm", 1, {"dram_read_bytes": 1.0}),
        Kernel("Memset (Device)"),
    )
    (doubt,) = record.caveats
    assert doubt.kind == "ncu-counters"
    assert "cold cache" in doubt.message


def test_without_its_counters_the_row_says_why_and_keeps_its_times(program: Program) -> None:
    class Top:
        class device:
            index = 0

    top: Any = Top
    record = session._counted(RECORD, program.says(), top)
    assert (record.status, record.times) == ("ok", RECORD.times)
    (doubt,) = record.caveats
    assert doubt.kind == "no-counters"
    assert "recorded no kernel" in doubt.message


def test_a_program_that_does_not_start_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="does not start"):
        Ncu(tmp_path / "absent", 5.0).count(REQUEST, "cuda:0")


def test_ctrl_c_under_ncu_keeps_what_was_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    class Measuring:
        deadline_s = 5.0

        def measure(self, *args: object, **kwargs: object) -> Record:
            return RECORD

    top = replace(header(h200_device(), COLD, None, "none"), run="r", counting="ncu")
    monkeypatch.setattr(session, "find_ncu", lambda: tmp_path / "ncu")
    monkeypatch.setattr(session, "_counted", interrupted)
    supervisor: Any = Measuring()
    with RunWriter(tmp_path / "run.jsonl") as writer, pytest.raises(KeyboardInterrupt):
        writer.header(top)
        session.measure_cases(supervisor, writer, top, [(CASE, COLD, 0)], lambda record: None)
    assert len(read_run(tmp_path / "run.jsonl").records) == 1


def test_the_program_under_ncu_shows_it_one_warm_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Runtime:
        def cudaProfilerStart(self) -> None:
            events.append("start")

        def cudaProfilerStop(self) -> None:
            events.append("stop")

    original = torch.Tensor.copy_

    def counted(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        events.append("call")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.cuda, "cudart", Runtime)
    monkeypatch.setattr(torch.Tensor, "copy_", counted)
    request = tmp_path / "request.json"
    request.write_bytes(msgspec.json.encode(REQUEST))
    assert ncu_target.main([str(request), "cpu"]) == 0
    shown = events[events.index("start") : events.index("stop") + 1]
    assert shown == ["start", "call", "stop"]
    assert events.count("call") >= 4
