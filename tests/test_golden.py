"""Every run file that was ever written is still read, and means the same.

`golden/` has a real run of each schema. Where a file is not written to the same bytes again, the
schema has changed: then a new file is added beside it, and the old one must still be read.
"""

import csv
import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from measured import RUN_FILES, name_of, run_file, text_of

from gpuperf.model.codec import decode, encode
from gpuperf.model.collective import Message
from gpuperf.model.record import SCHEMA, Header, Record
from gpuperf.model.times import TIMES
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.scene import scene
from gpuperf.run.runfile import RunWriter
from gpuperf.run.session import schedule_of
from gpuperf.run.store import read_run as read_anew
from gpuperf.show.render import FORMATS

TESTS = Path(__file__).parent
SCHEMAS = sorted(
    (TESTS / "golden").glob("run_schema_*.jsonl"), key=lambda path: int(path.stem.split("_")[-1])
)
GOLDEN = [*SCHEMAS, *RUN_FILES]
CURRENT = [path for path in GOLDEN if path.stem == f"run_schema_{SCHEMA}"]
by_name = pytest.mark.parametrize("path", GOLDEN, ids=name_of)
of_this_schema = pytest.mark.parametrize("path", CURRENT, ids=name_of)
read_run = cache(read_anew)  # one run for all tests of a file: a run is never changed


@cache
def shown(path: Path, format: str) -> str:
    return render_run(read_run(path), format)


def lines(path: Path) -> Iterator[bytes]:
    data = path.read_bytes() if path in SCHEMAS else text_of(path).encode()
    return (line for line in data.split(b"\n") if line)


def test_there_is_a_run_of_every_schema() -> None:
    assert [path.stem for path in SCHEMAS] == [f"run_schema_{n}" for n in range(1, SCHEMA + 1)]


@by_name
def test_a_golden_run_is_read_without_a_problem(path: Path) -> None:
    run = read_run(path)
    assert run.problems == ()
    if path in SCHEMAS:
        assert run.header.schema == int(path.stem.removeprefix("run_schema_"))
    assert len(run.records) == len(list(lines(path))) - 1
    kept = [(record.case, record.contract) for record in run.records]
    if run.header.command[1:2] == ("roofline",):  # others measure what turns out to be needed
        assert kept == [(case, contract) for case, contract, _ in schedule_of(run.header)]


@of_this_schema
def test_every_line_comes_back_to_its_bytes(path: Path) -> None:
    for line in lines(path):
        kind = {"header": Header, "record": Record}[json.loads(line)["type"]]
        assert encode(decode(line, kind)) == line


@of_this_schema
def test_a_golden_run_written_again_is_the_same_file(path: Path, tmp_path: Path) -> None:
    run = read_run(path)
    again = tmp_path / path.name
    with RunWriter(again) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    assert again.read_bytes() == path.read_bytes()


def test_the_run_of_schema_9_holds_records_that_break_physics() -> None:
    run = read_run(Path(__file__).parent / "golden" / "run_schema_9.jsonl")
    assert [r.status for r in run.records] == ["impossible", "impossible"]
    assert "of the measured roof of vector fp32" in run.records[0].reason
    assert run.records[0].samples is not None, "what was measured is kept as evidence"
    shown = render_run(run, "table")
    assert "impossible: its FLOPs" in shown
    assert "INVALID" not in shown


def test_the_run_of_schema_1_says_what_it_said() -> None:
    run = read_run(Path(__file__).parent / "golden" / "run_schema_1.jsonl")
    small, skipped, large = run.records
    assert run.header.device.kind == "cpu"
    assert run.header.peaks is None
    assert run.header.ceilings is not None
    assert (small.status, skipped.status, large.status) == ("ok", "skipped", "ok")
    assert small.samples is not None
    assert small.samples.size == 28
    assert small.samples.median_s == pytest.approx(37.676e-6, rel=1e-6)
    assert small.stop == "budget"
    assert [caveat.kind for caveat in small.caveats] == ["imprecise"]
    assert large.cost is not None
    assert large.cost.flop_count == 2 * 128**3
    assert large.check is not None
    assert large.check.error <= large.check.tolerance


# What the first record of each later schema says: what came with the schema, and what every record
# has. device, case, status, kind, primary time, its samples and their median in seconds, FLOPs,
# caveats, timer.
SAID: dict[int, tuple[object, ...]] = {
    2: (
        "AMD EPYC",
        "matmul/torch[m=32,n=32,k=32,dtype=fp32]",
        "ok",
        "case",
        "window",
        15,
        39.178502e-6,
        2 * 32**3,
        ["imprecise", "near-floor"],
        "wall",
    ),
    3: (
        "NVIDIA H200",
        "sincos/eager[n=4194304,dtype=fp32]",
        "ok",
        "case",
        "window",
        20,
        47.83670e-6,
        5 * 2**22,
        [],
        "blocked",
    ),
    4: (
        "NVIDIA H200",
        "sincos/eager[n=268435456,dtype=fp32]",
        "ok",
        "case",
        "window",
        20,
        2.755886e-3,
        5 * 2**28,
        [],
        "blocked",
    ),
    5: (
        "AMD EPYC",
        "matmul/torch[m=62,n=62,k=62,dtype=fp32]",
        "ok",
        "case",
        "window",
        3,
        15.993714e-3,
        2 * 62**3,
        ["contended", "few-samples"],
        "wall",
    ),
    6: (
        "NVIDIA H200",
        "vector_add/torch[n=1048576,dtype=fp32]",
        "ok",
        "case",
        "busy",
        20,
        4.140444e-6,
        2**20,
        ["launch-bound"],
        "blocked",
    ),
    7: (
        "AMD EPYC",
        "optimizer step/train.py[]",
        "ok",
        "region",
        "step",
        3,
        993.37299e-6,
        37_436_038,
        [],
        "wall",
    ),
    8: (
        "AMD EPYC",
        "step/train.py[]",
        "ok",
        "region",
        "step",
        3,
        396.21000e-6,
        2_563_408,
        [],
        "wall",
    ),
    9: (
        "AMD EPYC",
        "overstated/torch[m=16,n=16,k=16,dtype=fp32]",
        "impossible",
        "case",
        "window",
        3,
        86.296999e-6,
        8_192_000_000,
        ["contended", "few-samples", "near-floor"],
        "wall",
    ),
    10: (
        "AMD EPYC",
        "step/train.py[]",
        "ok",
        "region",
        "step",
        3,
        101.980726e-3,
        5_470_848,
        [],
        "wall",
    ),
    11: (
        "AMD EPYC",
        "added/torch[block=512,n=4096,dtype=fp32]",
        "ok",
        "case",
        "window",
        47,
        75.916490e-6,
        0,
        ["contended", "imprecise", "near-floor"],
        "wall",
    ),
    12: (
        "AMD EPYC",
        "all_reduce/gloo[bytes=1024,dtype=fp32,operation=sum,in_place=yes,world=2]",
        "ok",
        "case",
        "eager",
        4,
        0.4112635e-3,
        0,
        ["few-samples"],
        "wall",
    ),
    13: (
        "AMD EPYC",
        "optimizer step/step.py[]",
        "ok",
        "region",
        "step",
        4,
        0.023520037999333,
        8_939_520,
        [],
        "wall",
    ),
    14: (
        "AMD EPYC",
        "all_reduce/gloo[bytes=1024,dtype=fp32,operation=sum,in_place=yes,world=2]",
        "ok",
        "case",
        "eager",
        3,
        1.9079e-3,
        0,
        ["few-samples"],
        "wall",
    ),
    15: (
        "AMD EPYC",
        "matmul/torch[m=32,n=32,k=32,dtype=fp32]",
        "ok",
        "case",
        "window",
        14,
        28.0165e-6,
        2 * 32**3,
        ["imprecise", "near-floor"],
        "wall",
    ),
}


def test_what_the_runs_said_is_known_of_every_schema() -> None:
    assert [1, *SAID] == list(range(1, SCHEMA + 1))


@pytest.mark.parametrize("schema", SAID)
def test_the_run_of_each_later_schema_says_what_it_said(schema: int) -> None:
    run = read_run(TESTS / "golden" / f"run_schema_{schema}.jsonl")
    first = run.records[0]
    assert first.samples is not None
    assert first.cost is not None
    told = (
        run.header.device.name,
        first.case.id,
        first.status,
        first.kind,
        first.primary,
        first.samples.size,
        pytest.approx(first.samples.median_s, rel=1e-6),
        first.cost.flop_count,
        [caveat.kind for caveat in first.caveats],
        first.contract.timer,
    )
    assert told == SAID[schema]


def test_what_came_with_a_schema_is_read() -> None:
    """Counters with 3, the baseline with 4, studies with 5, kernels beside a case's times with 6,
    programs with 7 and 8, the status `impossible` with 9, the tensors of operators with 10,
    predictions with 11, the times of each rank with 12, programs of several ranks with 13, and the
    hosts of ranks with 14."""
    runs = {n: read_run(TESTS / "golden" / f"run_schema_{n}.jsonl") for n in range(1, SCHEMA + 1)}
    read = {n: runs[n].records[0].counters.get("dram_read_bytes") for n in (3, 4, 6)}
    assert read == pytest.approx({3: 56_985_823.186, 4: 6_442_654_922.882, 6: 8_373_523.007})
    assert {n: len(runs[n].records[0].kernels) for n in (1, 3, 4, 6)} == {1: 0, 3: 4, 4: 4, 6: 1}
    assert {n: run.header.baseline for n, run in runs.items() if run.header.baseline} == {
        4: "eager"
    }
    studies = {n: run.header.study for n, run in runs.items() if run.header.study}
    assert studies == {5: "alignment", **dict.fromkeys((7, 8, 10, 13), "profile"), 11: "lab:blocks"}
    peaks = {n: run.header.peaks.id for n, run in runs.items() if run.header.peaks}
    assert peaks == dict.fromkeys((3, 4, 6), "h200-sxm")
    regions = {n: runs[n].records[0].region for n in (7, 8)}
    assert regions == {7: "optimizer step", 8: "step"}
    assert runs[7].records[0].program is not None
    assert {record.status for record in runs[9].records} == {"impossible"}
    told = {r.operator.operands for r in runs[10].records if r.operator}
    assert {"32×64 fp32", "→ 32×64 fp32", "scalar fp32", ""} < told
    assert {n for n, run in runs.items() if run.header.expected} == {11}
    points = runs[11].header.expected.points if runs[11].header.expected else ()
    assert [p.expected.value for p in points if p.expected] == [8, 4, 2, 1, 1]
    assert [record.readings["blocks"] for record in runs[11].records] == [8, 4, 2, 1, 1]
    caches = [record.contract.cache for record in runs[11].records]
    assert caches == ["hot", *["cold"] * 4], "a point of an experiment has a cache of its own"
    assert {n: (run.header.world, run.header.devices) for n, run in runs.items()} == {
        **dict.fromkeys(range(1, 12), (1, (0,))),
        **dict.fromkeys((12, 13, 14), (2, (0, 0))),
        15: (1, (0,)),
    }
    ranks = runs[12].records[0].ranks
    assert [(times.rank, times.times["eager"].size) for times in ranks] == [(0, 4), (1, 4)]
    assert {n: run.header.hosts for n, run in runs.items() if run.header.hosts} == {
        14: ("node0", "node1")
    }
    ranks = runs[14].records[0].ranks
    assert [(times.rank, times.host) for times in ranks] == [(0, "node0"), (1, "node1")]
    programs = {r.rank: r.program for r in runs[13].records if r.program}
    for rank in (0, 1):
        (own,) = programs[rank].collectives
        assert own.message == Message("all_reduce", 4 * (256 * 512 + 512), "fp32", 2, "0")
        assert len(own.seconds) == len(own.starts) == programs[rank].steps["trace"] == 4


@by_name
def test_the_times_of_a_golden_run_are_documented(path: Path) -> None:
    assert {name for record in read_run(path).records for name in record.times} <= set(TIMES)


@by_name
@pytest.mark.parametrize("format", FORMATS)
def test_a_golden_run_is_shown_in_every_format(path: Path, format: str) -> None:
    text = shown(path, format)
    assert text.endswith("\n")
    assert read_run(path).records[0].case.op in text.replace("\\", "")


@by_name
def test_the_csv_of_a_golden_run_has_a_row_for_each_case(path: Path) -> None:
    """Several processes that measured a case have one row, with the median of all."""
    run, alike = read_run(path), dict[str, list[Record]]()
    passes = not run.header.study and any(record.pass_index for record in run.records)
    for number, record in enumerate(run.records):
        key = record.case.id if run.header.processes > 1 or passes else str(number)
        alike.setdefault(key, []).append(record)
    table = list(csv.DictReader(io.StringIO(shown(path, "csv"))))
    assert [row["status"] for row in table] == [own[0].status for own in alike.values()]
    for row, own in zip(table, alike.values(), strict=True):
        assert row["op"] == own[0].case.op
        for axis, value in own[0].case.point.items():
            assert row[f"point.{axis}"] == str(value)
        samples = [record.samples for record in own if record.samples is not None]
        if own[0].status == "ok" and samples:
            medians = [each.median_s for each in samples]
            low, high = min(medians) * (1 - 1e-9), max(medians) * (1 + 1e-9)
            assert low <= float(row["time_s"]) <= high
            assert len(own) > 1 or int(row["samples"]) == samples[0].size
        else:
            assert row["time_s"] == ""


@pytest.mark.parametrize(
    ("name", "kind"), [("h200-matmul-bf16", "roofline"), ("h200-vector-add", "bandwidth")]
)
def test_a_workload_of_one_intensity_is_drawn_as_bandwidth(name: str, kind: str) -> None:
    run = read_run(run_file(name))
    assert scene(run).kind == kind
