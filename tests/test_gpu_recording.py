"""gpuperf's own records of kernels are those of torch.profiler, and neither disturbs the other.

The processes are those of `docs/measured/activity.py`, since what a process may record depends on
who recorded in it before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

SCRIPT = Path(__file__).parent.parent / "docs" / "measured" / "activity.py"
CALLS = (
    *("add", "matmul 512", "matmul large", "softmax", "sort", "memset", "graph", "side stream"),
    *("copy from pageable", "copy from pinned", "copy to pinned", "copy on the device"),
    "10,000 launches",
)
STATIC = ("name", "stream", "device", "bytes", "grid", "block", "registers", "shared")
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rounds(seen: Mapping[str, Any], process: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = seen[process]["rounds"]
    return found


def total_us(rows: Rows) -> float:
    return sum(float(row["us"]) for row in rows)


@pytest.mark.parametrize("call", CALLS)
def test_each_record_is_that_of_torchs_profiler(seen: Mapping[str, Any], call: str) -> None:
    ours, theirs = (one["calls"][call] for one in rounds(seen, "own")[:2])
    assert [[row[field] for field in STATIC] for row in ours] == [
        [row[field] for field in STATIC] for row in theirs
    ]
    host = call.startswith("copy") and "device" not in call  # over PCIe, which varies
    assert total_us(ours) == pytest.approx(total_us(theirs), rel=0.5 if host else 0.15, abs=2.0)


def test_ten_thousand_launches_are_all_recorded(seen: Mapping[str, Any]) -> None:
    assert len(rounds(seen, "own")[0]["calls"]["10,000 launches"]) == 10_000


def test_both_recorders_agree_with_events_about_a_long_kernel(seen: Mapping[str, Any]) -> None:
    between = seen["own"]["witness_us"]
    for one in rounds(seen, "own"):
        large = one["calls"]["matmul large"]
        if isinstance(large, list):
            assert total_us(large) == pytest.approx(between, rel=0.05)
    for process in ("own", "kineto"):
        works = [one for one in rounds(seen, process) if one["by"] == "work"]
        assert [sum(w["calls"]["matmul large"]["us"]) for w in works] == [
            pytest.approx(between, rel=0.05)
        ]


def test_torchs_profiler_is_right_after_a_session_and_before_it(seen: Mapping[str, Any]) -> None:
    _, first, again, _, last = rounds(seen, "own")
    for call in CALLS:
        assert [row["name"] for row in last["calls"][call]] == [
            row["name"] for row in first["calls"][call]
        ]
    for call in CALLS:  # refused, so that Kineto records for the timers, or right
        rows = again["calls"][call]
        if isinstance(rows, str):
            assert "clock" in rows
        else:
            assert [row["name"] for row in rows] == [r["name"] for r in first["calls"][call]]
    alone = rounds(seen, "kineto")[0]["calls"]
    for call in CALLS:
        assert [row["name"] for row in alone[call]] == [r["name"] for r in first["calls"][call]]


def test_the_first_session_is_short(seen: Mapping[str, Any]) -> None:
    own, kineto = rounds(seen, "own")[0]["first_s"], rounds(seen, "kineto")[0]["first_s"]
    print(f"first session: {own:.3f} s, Kineto's {kineto:.3f} s")
    assert own < 0.5


def test_a_program_under_torchs_profiler_keeps_its_records(seen: Mapping[str, Any]) -> None:
    profiled = seen["profiled"]
    assert profiled["inner"]["names"] == []  # refused, as before
    assert "torch.profiler" in profiled["inner"]["doubt"]
    assert len(profiled["outer"]) == 1
    assert profiled["after"]["names"] == profiled["outer"]


def test_a_call_has_the_launches_of_its_kernels() -> None:
    from gpuperf.measure.launches import launches_of

    x = torch.ones(1 << 20, device="cuda")
    x.add_(1.0)
    torch.cuda.synchronize()
    (record,) = launches_of(lambda: (x.add_(1.0), torch.cuda.synchronize())[1])
    assert record.launch.blocks * record.launch.block[0] >= x.numel() / 16
    assert record.launch.registers > 0
