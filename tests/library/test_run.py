"""A run as a pandas frame and as a Parquet file, with the columns of the csv."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from measured import run_file
from synthetic import h200_run, hostile_run

import gpuperf
from gpuperf.errors import GpuperfError, UsageError
from gpuperf.model.workload import Case
from gpuperf.roofline.columns import COLUMNS, MAPPINGS
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.rows import rows

pandas = pytest.importorskip("pandas", reason="frames need pandas")


@pytest.fixture(scope="module")
def run() -> gpuperf.Run:
    """The sweep with a row for everything that goes wrong."""
    made = h200_run()
    return gpuperf.Run(made.header, made.records, made.problems)


def test_every_key_of_a_row_is_a_described_column_in_its_order() -> None:
    (row, *_) = rows(h200_run())
    assert [key for key in row if key not in MAPPINGS] == [column.name for column in COLUMNS]
    assert {key for key, value in row.items() if isinstance(value, dict)} == set(MAPPINGS)
    for column in COLUMNS:
        assert column.meaning, column
        if column.name.endswith("_s") and not column.name.endswith("_per_s"):
            assert column.unit == "s", column


def test_the_frame_has_the_columns_and_the_values_of_the_csv(run: gpuperf.Run) -> None:
    frame = run.frame()
    table = list(csv.reader(io.StringIO(render_run(run, "csv"))))
    assert list(frame.columns) == table[0]
    assert len(frame) == len(table) - 1 == len(run.records)
    for row, cells in zip(frame.itertuples(index=False), table[1:], strict=True):
        for name, value, cell in zip(table[0], row, cells, strict=True):
            if pandas.isna(value) or value == "":
                assert cell == "", name
            elif isinstance(value, float):
                assert float(cell) == value, name
            else:
                assert cell == str(value), name


def test_failed_records_are_rows_with_their_status_and_without_a_time(run: gpuperf.Run) -> None:
    frame = run.frame()
    failed = frame[frame.status != "ok"]
    assert set(failed.status) == {"oom", "wrong", "skipped", "crashed", "impossible"}
    assert failed.time_s.isna().all()
    assert frame[frame.status == "ok"].time_s.notna().all()


def test_each_column_has_a_unit_and_a_type_of_its_kind(run: gpuperf.Run) -> None:
    frame = run.frame()
    assert frame.attrs["run"] == run.header.run
    assert frame.attrs["units"]["flop_per_s"] == "FLOP/s"
    assert frame.attrs["units"]["times.window"] == "s"
    assert set(frame.attrs["units"]) == set(frame.attrs["meanings"]) == set(frame.columns)
    kinds = frame.dtypes.astype(str)
    assert kinds["time_s"] == kinds["flop"] == "float64"
    assert kinds["point.m"] == kinds["samples"] == "Int64"
    assert kinds["status"] == "string"
    counted = gpuperf.read_run(run_file("h200-matmul-counters")).frame()
    units = counted.attrs["units"]
    assert units["counters.dram_read_bytes"] == "byte"
    assert units["counters.tensor_bf16"] == "FLOP"
    assert units["counters.dram_calls"] == "count"


def test_a_comparison_has_a_row_for_each_process(run: gpuperf.Run) -> None:
    header = replace(run.header, baseline="torch", processes=2)
    passes = (replace(record, pass_index=i) for i in (0, 1) for record in run.records)
    both = gpuperf.Run(header, tuple(passes))
    frame = both.frame()
    assert len(frame) == len(both.records) == 2 * len(rows(both))
    assert sorted(frame["pass"].unique()) == [0, 1]
    assert set(frame[frame.status == "ok"].speedup) == {1.0}


def test_axes_of_numbers_and_names_are_texts(run: gpuperf.Run) -> None:
    first, second, third, *_ = run.records
    points = ({"m": 4}, {"m": "all"}, {"m": 2**64})
    mixed = [
        gpuperf.Run(
            run.header,
            tuple(
                type(record)(run.header.run, Case("op", "i", point), run.header.contract, "skipped")
                for record, point in zip((first, second, third), chosen, strict=False)
            ),
        ).frame()["point.m"]
        for chosen in (points, points[::2])
    ]
    assert list(mixed[0]) == ["4", "all", str(2**64)]
    assert list(mixed[1]) == ["4", str(2**64)]


def test_a_hostile_run_and_an_empty_one_have_frames() -> None:
    hostile = hostile_run()
    frame = gpuperf.Run(hostile.header, hostile.records).frame()
    assert len(frame) == len(hostile.records)
    assert len(gpuperf.Run(hostile.header, ()).frame()) == 0


def test_a_parquet_file_gives_an_equal_frame_back(run: gpuperf.Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet files need pyarrow")
    file = tmp_path / "run.parquet"
    run.to_parquet(file)
    again = pandas.read_parquet(file)
    pandas.testing.assert_frame_equal(run.frame(), again)
    assert again.attrs == run.frame().attrs
    field = parquet.read_schema(file).field("byte_per_s")
    assert field.metadata == {b"unit": b"byte/s", b"meaning": b"compulsory bytes over the time"}
    with pytest.raises(UsageError, match="cannot be written"):
        run.to_parquet(tmp_path)


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [("pandas", "frames need the package pandas"), ("pyarrow", "need the package pyarrow")],
)
def test_a_missing_package_is_named_with_a_hint(
    run: gpuperf.Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str, sentence: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(GpuperfError, match=sentence) as refused:
        run.to_parquet(tmp_path / "run.parquet")
    assert refused.value.hint == "pip install 'gpuperf[frames]'"
    assert not list(tmp_path.iterdir())
