"""Is what a check of the timers says true of its records?"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import h200_device, header

from gpuperf.errors import UsageError
from gpuperf.model.contract import Contract, Fingerprint
from gpuperf.model.noise import noise_of
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Kernel, Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case
from gpuperf.run.noise import keep_noise, kept_noise
from gpuperf.run.store import read_run
from gpuperf.timing_check import command as timing_check
from gpuperf.timing_check.cases import timing_cases
from gpuperf.timing_check.chart import draw_timing
from gpuperf.timing_check.study import timings
from gpuperf.timing_check.table import render_timing
from gpuperf.verb.registry import verb_of

US = 1e-6
CONTRACT = Contract("blocked")


def record(
    times: Mapping[str, tuple[float, ...]], index: int = 0, n: int = 1, kernels: int = 1
) -> Record:
    """One process's times in microseconds."""
    return Record(
        "r",
        Case("copy", "torch", {"n": n, "dtype": "fp32"}),
        CONTRACT,
        "ok",
        times={name: Samples(tuple(v * US for v in values)) for name, values in times.items()},
        primary="blocked" if "blocked" in times else "nvbench",
        kernels=(Kernel("k", kernels),),
        pass_index=index,
    )


def check(*records: Record) -> Run:
    top = header(h200_device(), CONTRACT, None, "none")
    return Run(replace(top, study="timing-check"), records)


TEN = (10.0,) * 5


def test_the_bias_of_a_timer_is_what_it_adds_to_the_busy_time() -> None:
    one = record({"blocked": (10.1,) * 5, "busy": TEN, "events": (25.0,) * 5})
    (timing,) = timings([one])
    assert timing.bias == pytest.approx({"blocked": 0.01, "events": 1.5})
    assert (timing.kernels, timing.busy_s) == (1, pytest.approx(10 * US))


def test_a_graph_is_held_against_a_hot_cache() -> None:
    one = record({"blocked": TEN, "busy": TEN, "graph": (9.0,) * 5, "busy_hot": (8.0,) * 5})
    assert timings([one])[0].bias["graph"] == pytest.approx(0.125)


def test_of_several_processes_the_middle_one_counts() -> None:
    records = [
        record({"blocked": (10 * factor,) * 5, "busy": TEN}, i)
        for i, factor in enumerate((1.0, 1.02, 1.5))
    ]
    assert timings(records)[0].bias["blocked"] == pytest.approx(0.02)


def test_two_usual_times_of_a_kernel_make_no_bias() -> None:
    """Half the samples at 2.27 and half at 2.47: one more of either moves the median by 9 %."""
    left, right = (2.27,) * 51 + (2.47,) * 49, (2.27,) * 49 + (2.47,) * 51
    assert Samples(right).median_s / Samples(left).median_s > 1.08
    bias = timings([record({"blocked": right, "busy": left})])[0].bias["blocked"]
    assert abs(bias) < 0.003


def test_nvbench_of_its_own_process_is_held_against_the_others() -> None:
    found = timings([record({"blocked": TEN, "busy": TEN}, 0), record({"nvbench": (15.0,)}, 1)])
    assert found[0].bias == pytest.approx({"blocked": 0.0, "nvbench": 0.5})


def test_a_call_of_several_kernels_is_held_against_its_span_too() -> None:
    times = {"blocked": (11.9,) * 5, "busy": TEN, "span": (12.0,) * 5}
    (several,) = timings([record(times, kernels=5)])
    assert several.over_span == pytest.approx(-0.1 / 12)
    assert several.bias["blocked"] == pytest.approx(0.19)
    assert "-0.8 %" in render_timing(check(record(times, kernels=5)), "table")
    assert timings([record(times)])[0].over_span is None


def test_cases_come_from_the_shortest_to_the_longest() -> None:
    records = [record({"blocked": (t,) * 3, "busy": (t,) * 3}, n=i) for i, t in enumerate((9, 2))]
    assert [round(t.busy_s / US) for t in timings(records)] == [2, 9]


def test_the_noise_is_told_from_three_processes_on() -> None:
    def processes(count: int) -> list[Record]:
        medians = (9.9, 10.0, 10.1)
        return [record({"blocked": (m - 0.1, m, m + 0.1)}, i) for i, m in enumerate(medians)][
            :count
        ]

    assert noise_of(processes(2)) is None
    noise = noise_of(processes(3))
    assert noise is not None
    assert noise.between == pytest.approx(0.01)
    assert noise.within == pytest.approx(0.01 / 1.349, rel=0.01)
    assert noise.processes == 3


def test_records_of_one_process_are_not_three() -> None:
    assert noise_of([record({"blocked": TEN}, 0, n) for n in range(5)]) is None


def test_the_noise_that_is_kept_is_the_default_timers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvbench runs in one process more, and reads another figure."""
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path))
    opened = Opened(h200_device(), Fingerprint())
    records = [record({"blocked": TEN, "busy": TEN}, i) for i in range(3)]
    keep_noise(opened, CONTRACT, [*records, record({"nvbench": (15.0,)}, 3)])
    (noise,) = kept_noise(opened, CONTRACT).values()
    assert (noise.between, noise.processes) == (0.0, 3)


def test_every_format_tells_the_same() -> None:
    run = check(record({"blocked": (10.1,) * 5, "busy": TEN, "events": (25.0,) * 5}))
    assert verb_of(run.header).name == "timing-check"
    row = json.loads(render_timing(run, "json"))[0]
    assert row["bias_events"] == pytest.approx(1.5)
    assert row["between"] is None
    line = next(csv.DictReader(io.StringIO(render_timing(run, "csv"))))
    assert float(line["bias_blocked"]) == pytest.approx(0.01)
    for text in (render_timing(run, "table"), render_timing(run, "md")):
        assert "+150 %" in text
        assert "+1.0 %" in text
        assert "nvbench" not in text


def test_what_failed_is_told_below() -> None:
    failed = replace(record({"blocked": TEN}), status="oom", reason="no memory", times={})
    assert "oom: no memory" in render_timing(check(failed), "table")


def test_the_chart_is_drawn_with_and_without_the_scatter(tmp_path: Path) -> None:
    for processes in (1, 3):
        records = [
            record({"blocked": (t + 0.01 * i,) * 5, "busy": (t,) * 5, "wall": (50.0,) * 5}, i, n)
            for i in range(processes)
            for n, t in enumerate((1.0, 10.0, 100.0))
        ]
        for suffix in (".png", ".svg"):
            file = tmp_path / f"timing{processes}{suffix}"
            draw_timing(check(*records), [file])
            assert file.stat().st_size > 5000


def test_a_run_without_a_bias_has_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing can be drawn"):
        draw_timing(check(record({"busy": TEN})), [tmp_path / "x.png"])


class Interrupted:
    """A supervisor whose second record is never finished: the user presses Ctrl-C."""

    def __init__(self) -> None:
        self.measured = 0
        self.listen: object = None
        self.renewals: list[str] = []

    def renew(self) -> None: ...

    def measure(
        self, run: str, case: Case, contract: Contract, seed: int, **more: object
    ) -> Record:
        self.measured += 1
        if self.measured == 2:
            raise KeyboardInterrupt
        return record({"blocked": TEN, "busy": TEN})


def test_ctrl_c_keeps_what_was_timed_and_hands_it_on(tmp_path: Path) -> None:
    top = replace(header(h200_device(), CONTRACT, None, "none"), run="r", plan=timing_cases())
    path = tmp_path / "run.jsonl"
    supervisor: Any = Interrupted()
    records, ended = timing_check._measure(supervisor, top, path, 3, default_only=False)
    assert isinstance(ended, KeyboardInterrupt)
    assert len(records) == len(read_run(path).records) == 1
