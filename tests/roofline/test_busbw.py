"""Does the chart of a sweep of collectives show its lines, and where NCCL changes its choice?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic

from gpuperf.errors import UsageError
from gpuperf.measure.registry import load_all
from gpuperf.model.contract import Contract
from gpuperf.model.record import Record, Run
from gpuperf.model.samples import Samples
from gpuperf.model.workload import Case, Point
from gpuperf.peaks.find import find_device
from gpuperf.roofline.busbw import draw_busbw, is_sweep, lines_of
from gpuperf.roofline.chart import draw_roofline
from gpuperf.roofline.output import render_rows
from gpuperf.roofline.page import roofline_html
from gpuperf.show.screen import WIDE

OPS = load_all("gpuperf.kernels").workloads
# Seconds of nccl-tests for an all-reduce between two H200 (`../shared/facts/collectives.md`, §2).
TIMES = {
    2**10: 6.0e-6,
    2**16: 7.4e-6,
    2**20: 14.3e-6,
    2**21: 26.8e-6,
    2**24: 76.2e-6,
    2**28: 886e-6,
}
SIMPLE_FROM = 2**21  # bytes


def record(op: str, name: str, size: int, time_s: float, **more: str) -> Record:
    point = {
        "bytes": size,
        "dtype": "bf16",
        "operation": "sum",
        "in_place": "yes",
        **more,
        "world": 2,
    }
    times = {"wire": Samples((time_s,) * 9), "eager": Samples((max(2 * time_s, 2e-5),) * 9)}
    protocol = "SIMPLE" if size >= SIMPLE_FROM else "LL"
    return Record(
        run="r",
        case=Case(op, name, point),
        contract=Contract(timer="graph"),
        status="ok",
        cost=OPS[op].cost(Point(point)),
        times=times,  # type: ignore[arg-type]
        primary="wire",
        chosen={"algorithm": "RING", "protocol": protocol, "channels": 16},
        world=2,
        devices=(0, 1),
    )


def sweep(ops: Sequence[str] = ("all_reduce",), names: Sequence[str] = ("nccl",)) -> Run:
    records = [record(op, n, size, s) for op in ops for n in names for size, s in TIMES.items()]
    peaks = find_device("h200-sxm")
    header = replace(
        synthetic.h200_run().header,
        peaks=peaks,
        plan=tuple(r.case for r in records),
        world=2,
        devices=(0, 1),
    )
    return Run(header, tuple(records))


def test_a_line_has_the_busbw_of_nccl_tests_and_the_step_between_two_sizes() -> None:
    (line,) = lines_of(sweep())
    assert (line.op, line.label, line.sizes) == ("all_reduce", "nccl", tuple(TIMES))
    assert line.wire == pytest.approx([size / time_s for size, time_s in TIMES.items()])
    assert line.eager[0] == pytest.approx(2**10 / 2e-5)
    ((size, text),) = line.steps()
    assert 2**20 < size < SIMPLE_FROM
    assert text == "RING LL → RING SIMPLE"


def test_variants_of_one_collective_are_lines_of_their_own_by_what_differs() -> None:
    run = sweep()
    other = [record("all_reduce", "nccl", size, s, in_place="no") for size, s in TIMES.items()]
    labels = [line.label for line in lines_of(Run(run.header, (*run.records, *other)))]
    assert labels == ["nccl, in place yes", "nccl, in place no"]


def test_contracts_of_one_collective_are_lines_of_their_own() -> None:
    run = sweep()
    hot = [replace(r, contract=replace(r.contract, cache="hot")) for r in run.records]
    lines = lines_of(Run(run.header, (*run.records, *hot)))
    assert [line.label for line in lines] == ["nccl, cold", "nccl, hot"]
    assert [line.sizes for line in lines] == [tuple(TIMES)] * 2


def test_without_a_time_of_the_host_there_is_no_dashed_line(tmp_path: Path) -> None:
    """Not even with it in some of the records: a line would join sizes that are not neighbours."""
    run = sweep()
    wire = [replace(r, times={"wire": r.times["wire"]}) for r in run.records]
    for records in (wire, [*run.records[:2], *wire[2:]]):
        own = Run(run.header, tuple(records))
        assert [line.eager for line in lines_of(own)] == [()]
        draw_roofline(own, [tmp_path / "chart.svg"])
    assert "dashed" not in (tmp_path / "chart.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("size", ["many", "", 0, -8])
def test_a_cell_whose_bytes_are_no_number_has_no_place(size: int | str) -> None:
    run = sweep()
    first, *others = run.records
    case = replace(first.case, point={**first.case.point, "bytes": size})
    (line,) = lines_of(Run(run.header, (replace(first, case=case), *others)))
    assert line.sizes == tuple(TIMES)[1:]


def test_a_size_without_a_choice_in_the_log_is_no_step() -> None:
    run = sweep()
    unknown = [replace(r, chosen={}) if r.case.point["bytes"] == 2**20 else r for r in run.records]
    (line,) = lines_of(Run(run.header, tuple(unknown)))
    assert [text for _, text in line.steps()] == ["RING LL → RING SIMPLE"]


def test_a_run_of_one_size_or_of_another_workload_is_no_sweep() -> None:
    run = sweep()
    assert is_sweep(run)
    assert not is_sweep(Run(run.header, run.records[:1]))
    matmul = synthetic.h200_run()
    assert not is_sweep(Run(run.header, (*run.records, *matmul.records)))
    with pytest.raises(UsageError, match="no time of a collective"):
        draw_busbw(matmul, Path("chart.svg"))


def test_the_chart_names_collectives_the_step_and_the_link(tmp_path: Path) -> None:
    run = sweep(("all_reduce", "all_gather", "broadcast"), ("nccl", "nccl_graph"))
    draw_roofline(run, [tmp_path / "chart.svg", tmp_path / "chart.png"])
    text = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    for words in ("all_gather: busbw in GB/s", "RING LL → RING SIMPLE", "nccl_graph", "450 GB/s"):
        assert words in text, words
    assert (tmp_path / "chart.png").stat().st_size > 10_000


def test_a_page_has_the_chart_of_a_sweep_and_no_terminal_has_a_roofline_of_it() -> None:
    run = sweep()
    page = roofline_html(run)
    assert "data:image/svg+xml;base64," in page
    assert "No roofline is drawn" not in page
    table = render_rows(run, "table", WIDE)
    assert "busbw" in table
    assert "┤" not in table


def test_roofs_that_a_calibration_cannot_measure_are_not_its_to_measure() -> None:
    """A collective has bytes over the link alone, of which no calibration knows the roof."""
    run = sweep()
    text = render_rows(Run(replace(run.header, peaks=None), run.records), "table", WIDE)
    assert "no roof is known for its bytes through the link between GPUs" in text
    assert "calibrate" not in text
