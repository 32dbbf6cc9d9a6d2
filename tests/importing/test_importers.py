"""A report of Nsight Compute as records; its reader is a fake that answers as NVIDIA's does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from synthetic import h200_device, header

from gpuperf.errors import CannotMeasure, UsageError
from gpuperf.importing import command as importing
from gpuperf.importing import ncu
from gpuperf.importing.ncu import Imported, read_report
from gpuperf.model.cost import Flops
from gpuperf.model.counted import counted
from gpuperf.model.record import Run
from gpuperf.peaks.find import find_peaks
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.scene import scene
from gpuperf.roofline.study import place
from gpuperf.run.store import read_run
from gpuperf.show.screen import Screen
from gpuperf.verb.options import Format

Value = float | str


@dataclass
class Metric:
    """One figure, with its unit."""

    held: Value
    told: str = ""

    def as_double(self) -> float:
        return float(self.held)

    def as_string(self) -> str:
        return str(self.held)

    def unit(self) -> str:
        return self.told


@dataclass
class Action:
    """One kernel."""

    named: str
    metrics: Mapping[str, Metric]
    demangled: str = ""
    NameBase_FUNCTION = 0
    NameBase_DEMANGLED = 1

    def name(self, base: int = NameBase_FUNCTION) -> str:
        return {self.NameBase_FUNCTION: self.named, self.NameBase_DEMANGLED: self.demangled}[base]

    def metric_by_name(self, name: str) -> Metric | None:
        return self.metrics.get(name)


@dataclass
class Range:
    """What was profiled at a stretch."""

    actions: Sequence[Action] = ()

    def num_actions(self) -> int:
        return len(self.actions)

    def action_by_idx(self, index: int) -> Action:
        return self.actions[index]


@dataclass
class Report:
    """All of a file."""

    ranges: Sequence[Range] = field(default_factory=tuple)

    def num_ranges(self) -> int:
        return len(self.ranges)

    def range_by_idx(self, index: int) -> Range:
        return self.ranges[index]


H200 = {
    "device__attribute_display_name": Metric("NVIDIA H200"),
    "device__attribute_multiprocessor_count": Metric(132),
    "device__attribute_compute_capability_major": Metric(9),
    "device__attribute_compute_capability_minor": Metric(0),
    "device__attribute_l2_cache_size": Metric(62914560),
    "device__attribute_clock_rate": Metric(1980000),
}
SUMS = {
    "gpu__time_duration.sum": Metric(175_000, "nsecond"),
    "sm__cycles_elapsed.max": Metric(284_000),
    "dram__bytes_read.sum": Metric(148e6, "byte"),
    "dram__bytes_write.sum": Metric(33.5e6, "byte"),
    "lts__t_bytes.sum": Metric(1.03e9, "byte"),
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum": Metric(137_438_953_472.0),
    "launch__grid_size": Metric(128),
    "launch__block_size": Metric(384),
}


def action(name: str = "gemm", **more: Metric) -> Action:
    return Action(name, {**H200, **SUMS, **more})


def imported(tmp_path: Path, *actions: Action, ranges: int = 1) -> Imported:
    file = tmp_path / "a.ncu-rep"
    file.write_bytes(b"NVR")
    report = Report([Range(actions)] * ranges)
    return read_report(file, "run", lambda path: report)


def test_a_kernel_is_a_record_with_its_time_bytes_and_operations(tmp_path: Path) -> None:
    (record,) = imported(tmp_path, action()).records
    assert (record.kind, record.status, record.case.op) == ("kernel", "ok", "gemm")
    assert record.case.point == {"launch": 0, "grid_size": 128, "block_size": 384}
    assert record.samples is not None
    assert record.samples.median_s == pytest.approx(175e-6)
    assert record.samples.clock_hz == pytest.approx(284_000 / 175e-6)
    assert record.cost is not None
    assert record.cost.flops == (Flops(2 * 4096**3, "matmul", "bf16", "fp32"),)
    assert record.cost.dram_bytes == 181_500_000
    assert record.counters["l2_bytes"] == 1.03e9
    assert record.kernels[0].counters["cycles"] == 284_000
    assert [caveat.kind for caveat in record.caveats] == ["imported"]


SIN = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::sin_kernel_cuda("
    "at::TensorIteratorBase &)::[lambda() (instance 2)]::operator ()() const::[lambda() "
    "(instance 2)]::operator ()() const::[lambda(float) (instance 1)], std::array<char *, "
    "(unsigned long)2>>(int, T2, T3)"
)
SUM = (
    "void at::native::reduce_kernel<(int)512, at::native::func_wrapper_t<float, at::native::"
    "sum_functor<float, float>::operator ()(at::TensorIterator &)::[lambda(float, float) "
    "(instance 1)]>>(T3)"
)


@pytest.mark.parametrize(
    ("demangled", "template"),
    [
        (SIN, "4, sin_kernel_cuda, array<char *, 2>"),
        (SUM, "512, func_wrapper_t<float, sum_functor<float, fl"),
        ("void (anonymous namespace)::softmax<float, (bool)0>(T1 *)", "float, 0"),
        ("gemm", None),
        ("", None),
        ("<([(" * 999, None),
    ],
)
def test_kernels_of_one_template_are_told_apart_by_its_arguments(
    tmp_path: Path, demangled: str, template: str | None
) -> None:
    (record,) = imported(tmp_path, replace(action("base"), demangled=demangled)).records
    assert record.case.op == "base"
    assert record.case.point.get("template") == template
    assert record.kernels[0].name == (demangled or "base")[:1000]


def test_the_table_has_the_template_arguments_of_each_kernel(tmp_path: Path) -> None:
    kernels = [replace(action("k"), demangled=SIN.replace("sin_", f)) for f in ("sin_", "cos_")]
    top = replace(header(h200_device(), ncu.CONTRACT, None, "none"), run="run")
    text = render_run(Run(top, imported(tmp_path, *kernels).records), "table", Screen(220))
    assert "4, sin_kernel_cuda, array<char *, 2>" in text
    assert "4, cos_kernel_cuda, array<char *, 2>" in text


def test_what_was_counted_is_not_held_against_itself(tmp_path: Path) -> None:
    found = imported(tmp_path, action())
    figures = counted(found.records[0])
    assert (figures.measured, figures.compulsory) == (181.5e6, 181_500_000)
    assert figures.flop_hardware == figures.flop_model == 2 * 4096**3
    assert figures.excess is figures.flop_excess is None
    assert figures.intensity("measured") == pytest.approx(2 * 4096**3 / 181.5e6)
    top = replace(header(h200_device(), ncu.CONTRACT, None, "none"), run="run")
    text = render_run(Run(top, found.records), "table", Screen(220))
    assert "181.5 MB" in text or "182 MB" in text
    assert "× least" not in text
    assert "× model" not in text
    assert "L2 writes back after the kernel has ended" in " ".join(text.split())


def without(*starts: str, **more: Metric) -> Action:
    kept = {k: v for k, v in {**H200, **SUMS}.items() if not k.startswith(starts)}
    return Action("add", {**kept, **more})


def test_bytes_that_the_report_has_as_one_sum_are_shown_as_read(tmp_path: Path) -> None:
    """As NVIDIA's own section of the memory has them: 94 % of 4.8 TB/s."""
    rate = {"dram__bytes.sum.per_second": Metric(0.94 * 4.8e12, "byte/s")}
    found = imported(tmp_path, without("dram__", "sm__ops", **rate))
    (record,) = found.records
    assert [caveat.kind for caveat in record.caveats] == ["imported", "total-bytes", "derived"]
    assert record.cost is not None
    assert record.cost.dram_bytes == pytest.approx(0.94 * 4.8e12 * 175e-6)
    assert record.counters["dram_written_bytes"] == 0
    placed = place(record, find_peaks(found.device)[0], None)
    assert placed is not None
    assert placed.limiter == "memory"
    assert placed.fraction == pytest.approx(0.94)
    assert placed.valid


def test_the_sum_of_the_bytes_is_not_asked_where_both_ways_are_known(tmp_path: Path) -> None:
    (record,) = imported(tmp_path, action(**{"dram__bytes.sum": Metric(1.0)})).records
    assert record.cost is not None
    assert record.cost.dram_bytes == 181_500_000
    half = without("dram__bytes_write", **{"dram__bytes.sum": Metric(200e6)})
    (record,) = imported(tmp_path, half).records
    assert record.cost is not None
    assert record.cost.dram_bytes == 200_000_000
    assert [caveat.kind for caveat in record.caveats] == ["imported", "total-bytes"]


def test_without_bytes_there_is_no_verdict_and_a_reason(tmp_path: Path) -> None:
    found = imported(tmp_path, without("dram__"))
    placed = place(found.records[0], find_peaks(found.device)[0], None)
    assert placed is not None
    assert (placed.limiter, placed.fraction, placed.intensity) == ("unknown", None, 0.0)
    assert "its bytes through DRAM are unknown" in placed.reasons
    assert placed.mfu_data_sheet == pytest.approx(2 * 4096**3 / 175e-6 / 989.4e12, rel=1e-3)


@pytest.mark.parametrize(
    ("major", "tma", "known"),
    [(9, None, False), (10, None, False), (9, 0, True), (9, 5, False), (8, None, True)],
)
def test_bytes_through_l1_are_unknown_where_loads_may_have_gone_by_it(
    tmp_path: Path, major: int, tma: int | None, known: bool
) -> None:
    more = {
        "device__attribute_compute_capability_major": Metric(major),
        "l1tex__t_bytes.sum": Metric(1e9),
    }
    more |= {} if tma is None else {"sm__inst_executed_pipe_tma.sum": Metric(tma)}
    (record,) = imported(tmp_path, action(**more)).records
    assert ("l1_bytes" in record.counters) is known


def test_cycles_of_another_pass_than_the_time_tell_no_clock(tmp_path: Path) -> None:
    fast = action(**{"sm__cycles_elapsed.max": Metric(1.03 * 1.98e9 * 175e-6)})
    (record,) = imported(tmp_path, fast).records
    assert record.samples is not None
    assert record.samples.clock_hz is None


def test_it_lies_under_the_roofline_of_its_device(tmp_path: Path) -> None:
    found = imported(tmp_path, action())
    peaks, _ = find_peaks(found.device)
    assert peaks is not None
    assert peaks.id == "h200-sxm"
    placed = place(found.records[0], peaks, None)
    assert placed is not None
    assert placed.mfu_data_sheet == pytest.approx(2 * 4096**3 / 175e-6 / 989.4e12, rel=1e-3)
    assert placed.intensity == pytest.approx(2 * 4096**3 / 181.5e6)
    assert placed.limiter == "compute"


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        ("nsecond", 175_000),
        ("ns", 175_000),
        ("usecond", 175),
        ("us", 175),
        ("ms", 0.175),
        ("msecond", 0.175),
        ("second", 175e-6),
    ],
)
def test_the_duration_is_in_the_reports_own_unit(tmp_path: Path, unit: str, value: float) -> None:
    told = {"gpu__time_duration.sum": Metric(value, unit)}
    (record,) = imported(tmp_path, action(**told)).records
    assert record.samples is not None
    assert record.samples.median_s == pytest.approx(175e-6)


def test_a_figure_may_stand_there_as_a_rate(tmp_path: Path) -> None:
    metrics = {k: v for k, v in {**H200, **SUMS}.items() if not k.startswith(("dram", "sm__ops"))}
    rates = {
        "dram__bytes_read.sum.per_second": Metric(148e6 / 175e-6),
        "dram__bytes_write.sum.per_second": Metric(33.5e6 / 175e-6),
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed": Metric(1000),
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum.per_cycle_elapsed": Metric(10),
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum.per_cycle_elapsed": Metric(0),
        "smsp__cycles_elapsed.max": Metric(284_000),
    }
    (record,) = imported(tmp_path, Action("axpy", {**metrics, **rates})).records
    assert record.cost is not None
    assert record.cost.dram_bytes == pytest.approx(181.5e6)
    assert record.cost.flops == (Flops(2010 * 284_000, "elementwise", "fp32"),)
    assert [caveat.kind for caveat in record.caveats] == ["imported", "derived"]


def test_a_rate_of_nought_is_exact(tmp_path: Path) -> None:
    """As is the time, whatever else is a rate."""
    none = {
        "sm__ops_path_tensor_src_fp64.sum.per_second": Metric(0),
        "sm__inst_executed_pipe_tma.sum.per_second": Metric(1e9),
    }
    (record,) = imported(tmp_path, action(**none)).records
    assert record.counters["tensor_fp64"] == 0
    assert [caveat.kind for caveat in record.caveats] == ["imported"]


def test_what_the_report_lacks_is_unknown(tmp_path: Path) -> None:
    bare = Action("k", {"gpu__time_duration.sum": Metric(1000, "nsecond")})
    found = imported(tmp_path, bare)
    (record,) = found.records
    assert record.counters == {}
    assert record.kernels[0].counters == pytest.approx({"time_ns": 1000})
    assert record.cost is not None
    assert (record.cost.flops, record.cost.dram_bytes) == ((), 0)
    assert (found.device.name, found.device.sm_count) == ("unknown GPU", 0)
    assert find_peaks(found.device)[0] is None


def test_a_report_without_bytes_is_shown_and_not_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = Action("k", {**H200, "gpu__time_duration.sum": Metric(1000, "nsecond")})
    monkeypatch.setattr(ncu, "_reader", lambda: lambda path: Report([Range([bare])]))
    file = tmp_path / "a.ncu-rep"
    file.write_bytes(b"NVR")
    importing.import_file(file, tmp_path / "out", Format.TABLE, "compulsory")
    told = capsys.readouterr()
    assert "1.000 µs" in told.out
    assert "0 GB/s" not in told.out
    assert "no chart was written" in told.err


def test_a_thousand_kernels_are_one_series(tmp_path: Path) -> None:
    found = imported(tmp_path, *(action(f"kernel_{i}") for i in range(50)), ranges=20)
    top = header(h200_device(), ncu.CONTRACT, None, "none")
    shown = scene(Run(replace(top, run="run"), found.records))
    (series,) = shown.series
    assert series.label == "kernels bf16"
    assert len(series.dots) == 1000
    assert list(series.stretches()) == []
    assert "50 operations" in render_run(Run(replace(top, run="run"), found.records), "md")


@pytest.mark.parametrize("name", ["dram__bytes_read.sum", "launch__grid_size"])
def test_a_figure_beyond_all_measure_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="kernel 0 has an impossible value"):
        imported(tmp_path, action(**{name: Metric(1e300)}))


def test_kernels_of_all_ranges_come_in_order_and_one_without_a_time_is_left_out(
    tmp_path: Path,
) -> None:
    timeless = Action("none", H200)
    found = imported(tmp_path, action("a"), timeless, action("b"), ranges=2)
    assert [r.case.op for r in found.records] == ["a", "b", "a", "b"]
    assert len({r.case.id for r in found.records}) == 4
    assert found.skipped == 2


def test_figures_that_are_no_numbers_are_unknown(tmp_path: Path) -> None:
    (record,) = imported(tmp_path, action(**{"lts__t_bytes.sum": Metric(float("nan"))})).records
    assert "l2_bytes" not in record.counters
    found = imported(
        tmp_path, action(**{"gpu__time_duration.sum": Metric(float("inf"), "nsecond")})
    )
    assert (found.records, found.skipped) == ((), 1)


def test_a_report_without_kernels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no kernels"):
        imported(tmp_path)


def test_what_the_reader_cannot_read_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "bad.ncu-rep"
    file.write_bytes(b"nonsense")

    def load(path: str) -> object:
        raise RuntimeError("protobuf is unhappy")

    with pytest.raises(UsageError, match="cannot be read as a report: protobuf is unhappy"):
        read_report(file, "run", load)
    with pytest.raises(UsageError, match="there is no report"):
        read_report(tmp_path / "absent", "run", load)
    with pytest.raises(UsageError, match="there is no report"):
        read_report(tmp_path, "run", load)


@pytest.mark.parametrize("name", ["passwd", "run.jsonl", "a.ncu-rep.part"])
def test_a_file_that_is_named_like_neither_is_refused_by_its_name(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("root")
    with pytest.raises(UsageError, match="neither a report of Nsight Compute nor a trace"):
        importing.import_file(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_or_a_report_beyond_all_measure_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "MOST_KERNELS", 3)
    with pytest.raises(UsageError, match="over 3 kernels"):
        imported(tmp_path, action(), ranges=4)
    monkeypatch.setattr(ncu, "LARGEST_FILE", 2)
    with pytest.raises(UsageError, match="larger than"):
        imported(tmp_path, action())


def test_without_the_reader_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ncu_report", None)
    file = tmp_path / "a.ncu-rep"
    file.write_bytes(b"NVR")
    with pytest.raises(CannotMeasure, match="ncu-report") as refused:
        read_report(file, "run")
    assert "gpuperf[ncu]" in refused.value.hint


def test_the_command_writes_a_run_that_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = (action("gemm"), action("softmax"))
    monkeypatch.setattr(ncu, "_reader", lambda: lambda path: Report([Range(kernels)]))
    file = tmp_path / "a.ncu-rep"
    file.write_bytes(b"NVR")
    importing.import_file(file, tmp_path / "out", Format.TABLE, "compulsory")
    out = capsys.readouterr().out
    assert "gemm" in out
    assert "softmax" in out
    assert "imported" in out
    (written,) = (tmp_path / "out").glob("*.jsonl")
    run = read_run(written)
    assert (len(run.records), run.problems) == (2, ())
    assert run.header.peaks is not None
    assert written.with_suffix(".png").stat().st_size > 5000
    assert "no interval is known" in out
    assert "±" not in out
