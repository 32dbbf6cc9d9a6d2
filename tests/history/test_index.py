"""Test that the run files of a folder are read fast, and that the cache never hides a change."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_history import FIRST, MATMUL, night, nights, record_of, run_of, write_run, write_runs

from gpuperf.errors import UnknownName, UsageError
from gpuperf.history import index
from gpuperf.history.index import FolderReadings, read_folder
from gpuperf.model.record import Run
from gpuperf.model.text import clean
from gpuperf.model.workload import Case

TORCH = MATMUL.id


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_runs(tmp_path / "runs", nights(3))


def kept(cache: Path) -> Path:
    (found,) = (cache / "history").iterdir()
    return found


def runs_of(found: FolderReadings) -> list[str]:
    return sorted({reading.run for reading in found.readings})


def test_every_case_of_every_file_is_found(folder: Path) -> None:
    found = read_folder(folder)
    assert (found.files, found.skipped) == (3, ())
    assert found.cases == (MATMUL, replace(MATMUL, implementation="triton"))
    assert len(found.readings) == 6
    reading = next(reading for reading in found.readings if reading.case.id == TORCH)
    assert reading.quartiles_s is not None
    assert reading.quartiles_s[1] == nights(3)[0].records[0].samples.median_s  # type: ignore[union-attr]
    assert dict(reading.environment.soft)["torch"] == "2.11.0"


def test_a_compressed_file_is_read_as_well(folder: Path) -> None:
    before = read_folder(folder)
    plain = next(folder.glob("*.jsonl"))
    plain.with_name(f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    found = read_folder(folder)
    assert (found.files, found.skipped) == (3, ())
    assert sorted(map(repr, found.readings)) == sorted(map(repr, before.readings))


def test_the_index_says_what_the_files_say(folder: Path, cache: Path) -> None:
    write_run(
        folder / "failed.jsonl",
        run_of(
            "failed", [record_of("failed", MATMUL, FIRST, None, status="oom", reason="too big")]
        ),
    )
    first = read_folder(folder)
    assert kept(cache).stat().st_size > 0
    again = read_folder(folder)
    shutil.rmtree(cache)
    anew = read_folder(folder)
    for other in (again, anew):
        assert other == first
    assert any(reading.quartiles_s is None for reading in first.readings)


def test_one_case_alone_can_be_asked_for(folder: Path) -> None:
    asked: list[Sequence[Case]] = []

    def choose(cases: Sequence[Case]) -> Case:
        asked.append(cases)
        return cases[1]

    found = read_folder(folder, choose)
    assert {reading.case.id for reading in found.readings} == {found.cases[1].id}
    assert asked == [found.cases]


def test_what_the_choice_refuses_is_no_fault_of_the_index(folder: Path, cache: Path) -> None:
    read_folder(folder)
    before = kept(cache).stat()

    def choose(cases: Sequence[Case]) -> Case:
        raise UnknownName("case", "x", [case.id for case in cases])

    with pytest.raises(UnknownName):
        read_folder(folder, choose)
    assert kept(cache).stat().st_ino == before.st_ino


def test_a_file_that_is_new_changed_or_gone_is_seen(folder: Path) -> None:
    read_folder(folder)
    write_runs(folder, nights(1, first=9))
    assert len(runs_of(read_folder(folder))) == 4
    grown = next(folder.iterdir())
    write_run(grown, night(20, {"torch": 1e-3}))  # appended: a file may hold several runs
    assert len(runs_of(read_folder(folder))) == 5
    grown.unlink()
    assert len(runs_of(read_folder(folder))) == 3


def test_the_same_folder_by_another_path_is_not_read_again(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_folder(folder)
    before = kept(cache).stat().st_mtime_ns
    monkeypatch.chdir(folder.parent)
    assert len(read_folder(Path("runs")).readings) == 6
    assert kept(cache).stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "content",
    [b"no JSON", b"", b"{}", b'{"files":{"a":1}}', b'{"cases":[1],"environments":[],"files":{}}'],
    ids=["garbled", "empty", "no tables", "no file", "no case"],
)
def test_a_broken_index_is_silently_built_anew(folder: Path, cache: Path, content: bytes) -> None:
    first = read_folder(folder)
    whole = kept(cache).read_bytes()
    for broken in (content, whole[: len(whole) // 2]):
        kept(cache).write_bytes(broken)
        assert read_folder(folder) == first
        assert json.loads(kept(cache).read_bytes()) == json.loads(whole)


def test_an_interrupted_reading_keeps_the_files_that_were_read(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = index.read_runs
    files = sorted(folder.iterdir())

    def interrupt(path: Path) -> tuple[Run, ...]:
        if path == files[-1]:
            raise KeyboardInterrupt
        return read(path)

    monkeypatch.setattr(index, "read_runs", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read_folder(folder)
    assert len(json.loads(kept(cache).read_bytes())["files"]) == 2


def test_without_a_cache_folder_the_files_are_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    for place in (blocked, Path("/proc/nowhere")):
        monkeypatch.setenv("GPUPERF_CACHE", str(place))
        assert len(read_folder(folder).readings) == 6


def test_what_is_no_run_file_is_passed_over_and_said(folder: Path) -> None:
    (folder / "notes.txt").write_text("no run")
    (folder / "chart.png").write_bytes(b"\x89PNG")
    (folder / "other.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    (folder / "empty.jsonl").write_text("")
    (folder / "text.jsonl").write_text("hello\n")
    (folder / "deep.jsonl").write_text("[" * 100_000)
    (folder / "newer.jsonl").write_text('{"type":"header","schema":999,"run":"x"}\n')
    for _ in range(2):  # read, and from the index
        found = read_folder(folder)
        assert len(found.readings) == 6
        told = "\n".join(found.skipped)
        assert len(found.skipped) == 5, told
        assert "schema 999" in told
        assert "notes.txt" not in told


def test_a_half_written_file_gives_what_it_has(folder: Path) -> None:
    path = next(folder.iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 200])
    found = read_folder(folder)
    assert len(found.readings) == 5
    (words,) = found.skipped
    assert "the rest was read" in words


def test_folders_in_folders_are_searched_but_not_hidden_ones(folder: Path) -> None:
    write_runs(folder / "2026" / "march", nights(1, first=9))
    write_runs(folder / ".trash", nights(1, first=10))
    assert len(read_folder(folder).readings) == 8


def test_no_link_and_no_pipe_is_followed(folder: Path, tmp_path: Path) -> None:
    outside = write_runs(tmp_path / "outside", nights(2, first=9))
    (folder / "link.jsonl").symlink_to(next(outside.iterdir()))
    (folder / "loop").symlink_to(folder)
    (folder / "out").symlink_to(outside)
    os.mkfifo(folder / "pipe.jsonl")
    found = read_folder(folder)
    assert len(found.readings) == 6
    assert sorted(Path(words.split()[0]).name for words in found.skipped) == [
        "link.jsonl",
        "pipe.jsonl",
    ]


def test_a_folder_that_is_a_link_itself_is_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(folder)
    assert len(read_folder(tmp_path / "latest").readings) == 6


def test_sides_of_a_gate_are_no_history(folder: Path) -> None:
    """The head may never be merged, and a selftest slows it down on purpose."""
    gate = folder / "20260301-gate-ci"
    write_run(gate / "base.jsonl", night(8, {"torch": 1e-3}))
    write_run(gate / "head.jsonl", night(9, {"torch": 2e-3}))
    (gate / "verdict.json").write_text("{}")
    found = read_folder(folder)
    assert len(found.readings) == 6
    assert found.skipped == ("2 files are sides of a gate, and not part of a history",)


@pytest.mark.parametrize("name", ["no such folder", "a file"])
def test_what_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(UsageError, match="is not a folder"):
        read_folder(tmp_path / name)


HOSTILE = [
    "'); DROP TABLE readings; --",
    "\x1b[31mred\x1b[0m",
    "../../etc/passwd",
    "a\nb",
    "[bold]x[/bold]",
    "\u202eabc",
    "ünïcode",
    "x" * 5000,
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_a_name_without_what_does_not_print(folder: Path, name: str) -> None:
    case, legible = replace(MATMUL, op=name), clean(name)
    record = record_of(name, case, FIRST, 1e-3, soft={name: name})
    write_run(folder / "hostile.jsonl", run_of(name, [record]))
    for _ in range(2):
        found = read_folder(folder, lambda cases: next(c for c in cases if c.id == clean(case.id)))
        (reading,) = found.readings
        assert (reading.case.id, reading.run) == (clean(case.id), legible)
        assert dict(reading.environment.soft) == {legible: legible}
    assert len(read_folder(folder).readings) == 7


@pytest.mark.parametrize("name", [b"a\nb.jsonl", b"\x1b[31m.jsonl", b"\xff\xfe.jsonl", b"'.jsonl"])
def test_a_hostile_file_name_is_read(folder: Path, name: bytes) -> None:
    source = next(folder.iterdir())
    os.rename(os.fsencode(source), os.path.join(os.fsencode(folder), name))  # noqa: PTH104, PTH118
    for _ in range(2):
        assert len(read_folder(folder).readings) == 6


@pytest.mark.parametrize("count", [-1, 2**31, 2**63, 2**70])
def test_a_file_with_numbers_beyond_any_run_is_refused(folder: Path, count: int) -> None:
    path = write_run(folder / "odd.jsonl", night(9, {"torch": 1e-3}))
    path.write_text(path.read_text().replace('"pass_index":0', f'"pass_index":{count}'))
    found = read_folder(folder)
    assert len(found.readings) == 6
    assert len(found.skipped) == 1


@pytest.mark.parametrize("value", ["NaN", "1e999", "null", '"1"', "-1.0", "0.0", "1e-300"])
def test_a_time_that_is_none_is_no_reading_with_a_time(folder: Path, value: str) -> None:
    path = write_run(folder / "odd.jsonl", night(9, {"torch": 1e-3}))
    lines = path.read_text().split("\n")
    record = json.loads(lines[2])
    size = len(record["times"]["window"]["values_s"])
    record["times"]["window"]["values_s"] = ["VALUE"] * size
    lines[2] = json.dumps(record).replace('"VALUE"', value)
    path.write_text("\n".join(lines))
    found = read_folder(folder)
    with_time = [reading for reading in found.readings if reading.quartiles_s]
    assert len(with_time) == 6


def test_a_file_of_a_million_lines_is_refused_fast(folder: Path) -> None:
    (folder / "garbage.jsonl").write_bytes(b'{"x": 1}\n' * 1_000_000)
    started = time.process_time()
    assert len(read_folder(folder).readings) == 6
    assert time.process_time() - started < 4


def test_a_file_beyond_any_run_is_not_opened(folder: Path) -> None:
    path = write_run(folder / "huge.jsonl", night(9, {"torch": 1e-3}))
    os.truncate(path, index.MOST_BYTES + 1)  # a hole
    for most in (2.0, 0.5):  # seconds; the second time the index remembers
        started = time.process_time()
        found = read_folder(folder)
        assert time.process_time() - started < most
        assert len(found.readings) == 6
        assert found.skipped == (f"{path}: is over 256 MiB",)


def test_more_files_than_can_be_are_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MOST_FILES", 2)
    found = read_folder(folder)
    assert (found.files, len(found.readings)) == (2, 4)
    assert "holds too much" in found.skipped[0]


def test_files_are_read_once(tmp_path: Path) -> None:
    """400 runs of 20 cases; the bounds are for a machine that does three other things."""
    names = {f"impl{i}": 1e-4 * (i + 1) for i in range(20)}
    folder = write_runs(tmp_path / "runs", (night(i, names) for i in range(400)))
    started = time.process_time()
    assert len(read_folder(folder).readings) == 8_000
    assert time.process_time() - started < 6
    started = time.process_time()
    assert len(read_folder(folder).readings) == 8_000
    assert time.process_time() - started < 0.8


def test_an_empty_folder_has_no_case(tmp_path: Path) -> None:
    def never(cases: Sequence[Case]) -> Case:
        raise AssertionError("there is nothing to choose")

    found = read_folder(tmp_path, never)
    assert (found.files, found.cases, found.readings) == (0, (), ())


def test_runs_merged_with_cat_are_all_found(folder: Path, tmp_path: Path) -> None:
    merged = tmp_path / "merged"
    merged.mkdir()
    whole = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    (merged / "all.jsonl").write_bytes(whole)
    assert runs_of(read_folder(merged)) == runs_of(read_folder(folder))


def test_rows_of_kernels_are_no_cases(tmp_path: Path) -> None:
    run = nights(1)[0]
    rows = tuple(replace(record, kind="kernel") for record in run.records)
    write_runs(tmp_path / "runs", [Run(run.header, rows)])
    assert read_folder(tmp_path / "runs").readings == ()
