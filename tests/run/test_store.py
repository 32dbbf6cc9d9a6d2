"""Test that no damage to a run file loses what was measured."""

import contextlib
import gzip
import json
import os
import resource
import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import run_file, text_of
from synthetic import h200_run, h200_sweep, matmul

from gpuperf.errors import CannotMeasure, GpuperfError, Incomplete, RunFileError, UsageError
from gpuperf.model.codec import encode
from gpuperf.model.record import SCHEMA, Run
from gpuperf.roofline.formats import render_run
from gpuperf.run.runfile import RunWriter
from gpuperf.run.store import LONGEST_LINE, MOST_EXPANDED, read_run, read_runs, read_summary

RUN = h200_sweep((128, 256, 512))
OTHER = replace(
    RUN,
    header=replace(RUN.header, run="other"),
    records=tuple(replace(r, run="other") for r in RUN.records[:2]),
)


def write(path: Path, run: Run = RUN) -> Path:
    with RunWriter(path) as writer:
        writer.header(run.header)
        for record in run.records:
            writer.record(record)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "run.jsonl")


def refusal(path: Path, read: Callable[[Path], object] = read_runs) -> RunFileError:
    with pytest.raises(RunFileError) as caught:
        read(path)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("run", [RUN, replace(h200_run(), problems=())])
def test_a_run_is_read_as_it_was_written(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path / "new" / "folder" / "run.jsonl", run)
    assert read_run(path) == run
    assert read_run(str(path)) == run


def test_a_run_without_records_is_a_run(tmp_path: Path) -> None:
    assert read_run(write(tmp_path / "run.jsonl", replace(RUN, records=()))).records == ()


def test_each_record_is_in_the_file_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunWriter(path) as writer:
        writer.header(RUN.header)
        for done in range(len(RUN.records)):
            writer.record(RUN.records[done])
            assert read_run(path).records == RUN.records[: done + 1]


def test_a_last_line_cut_anywhere_costs_that_record_alone(tmp_path: Path) -> None:
    small = replace(RUN.records[0], times={}, primary="", stop="", caveats=(), cost=None)
    run = replace(RUN, records=(RUN.records[1], replace(small, pass_index=1)))
    whole = write(tmp_path / "whole.jsonl", run).read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    path = tmp_path / "cut.jsonl"
    for end in range(start, len(whole) + 1):
        path.write_bytes(whole[:end])
        again = read_run(path)
        complete = end >= len(whole) - 1  # all but the newline
        assert again.records == (run.records if complete else run.records[:1])
        assert len(again.problems) == (0 if complete or end == start else 1)
        for problem in again.problems:
            assert problem.startswith("line 4 is not a whole record")
    assert end - start > 500


@given(st.data())
def test_a_file_cut_anywhere_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "run.jsonl"
    whole = write(path).read_bytes()
    end = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:end])
    lines = whole[:end].count(b"\n")
    if end < whole.index(b"\n", 1):
        assert "is not a run of gpuperf" in str(refusal(path))
    else:
        assert len(read_run(path).records) in (lines - 2, lines - 1)


def test_a_run_goes_on_behind_a_line_that_was_cut_off(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with RunWriter(path) as writer:
        writer.resume()
        writer.record(RUN.records[2])
    again = read_run(path)
    assert again.records == RUN.records
    assert len(again.problems) == 1


def test_a_header_glued_to_a_broken_line_is_found_again(path: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.jsonl", OTHER).read_bytes()
    path.write_bytes(path.read_bytes()[:-100] + other.lstrip(b"\n"))
    first, second = read_runs(path)
    assert first.records == RUN.records[:2]
    assert second.header == OTHER.header
    assert second.records == OTHER.records
    assert len(first.problems) == 1
    assert first.problems[0].startswith("line 5 is not a whole record")


def test_files_joined_by_cat_are_the_runs_they_were(path: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.jsonl", OTHER)
    path.write_bytes(path.read_bytes() + other.read_bytes())
    assert read_runs(path) == (RUN, OTHER)
    error = refusal(path, read_run)
    assert "holds 2 runs" in str(error)
    assert OTHER.header.run in str(error)
    assert error.hint


def test_records_of_two_runs_may_be_mixed(tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    lines = [RUN.header, OTHER.header, OTHER.records[0], *RUN.records, OTHER.records[1]]
    path.write_bytes(b"\n".join(map(encode, lines)))
    assert read_runs(path) == (RUN, OTHER)


def test_a_file_written_twice_is_one_run(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)
    assert read_run(path) == RUN


def test_the_last_record_of_a_key_counts(path: Path) -> None:
    again = replace(RUN.records[1], status="oom", reason="measured again")
    others = (
        replace(RUN.records[1], pass_index=1),
        replace(RUN.records[1], rank=1),
        replace(RUN.records[1], contract=replace(RUN.header.contract, cache="hot")),
    )
    with RunWriter(path) as writer:
        for record in (again, *others):
            writer.record(record)
    assert read_run(path).records == (RUN.records[0], again, RUN.records[2], *others)


@pytest.mark.parametrize("noun", [RUN.header, RUN.records[0]])
def test_a_newer_schema_is_refused_with_a_hint(path: Path, noun: object) -> None:
    fields = json.loads(encode(noun)) | {"schema": SCHEMA + 1, "status": "teleported"}
    with path.open("ab") as file:
        file.write(encode(fields) + b"\n")
    error = refusal(path)
    assert f"has schema {SCHEMA + 1}; this gpuperf reads up to {SCHEMA}" in str(error)
    assert error.hint == "upgrade gpuperf"


def test_fields_that_are_not_known_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = []
    for noun in (RUN.header, *RUN.records):
        fields = json.loads(encode(noun))
        fields["mood"] = {"of": ["the", "GPU"]}
        fields["contract"]["moon"] = "full"
        lines.append(json.dumps(fields))
    path.write_text("\n".join(lines))
    assert read_run(path) == RUN


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n\n",
        b"hello\nworld\n",
        b"{}\n",
        b"[]\n",
        b'{"type":"header"}\n',
        b'{"type":"record"}\n',
        b'{"type":"header","run":"r","schema":1}\n',
        b'{"type":["header"]}\n',
        b'{"schema":"one"}\n',
        b"\x89PNG\r\n\x1a\n\x00\xff",
        b"[" * 1_000_000,
        b'{"run":"' * 1000 + b'"type":"header"',
        encode(RUN.records[0]) + b"\n",
    ],
    ids=range(14),
)
def test_what_is_no_run_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    error = refusal(path)
    assert str(error) == f"{path} is not a run of gpuperf"
    assert error.hint == "`gpuperf roofline` writes run files"


@pytest.mark.parametrize(
    "line", [b"not JSON", b"{}", b"\xff\xfe", b'{"type":"record"}', encode(RUN.records[0])[:-1]]
)
def test_a_broken_line_is_a_problem_with_its_number(path: Path, line: bytes) -> None:
    header, *records = path.read_bytes().strip().split(b"\n")
    path.write_bytes(b"\n".join([header, line, *records]))
    again = read_run(path)
    assert again.records == RUN.records
    assert len(again.problems) == 1
    assert again.problems[0].startswith("line 2 is not a whole record (")


def test_records_without_their_header_are_a_problem(path: Path) -> None:
    strays = [replace(RUN.records[0], run="lost"), replace(RUN.records[1], run="lost")]
    with RunWriter(path) as writer:
        for stray in strays:
            writer.record(stray)
    again = read_run(path)
    assert again.records == RUN.records
    assert again.problems == ("2 records belong to runs whose header is missing",)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    assert str(refusal(missing)) == f"{missing} cannot be read: No such file or directory"


def test_a_folder_is_no_run(tmp_path: Path) -> None:
    assert str(refusal(tmp_path)) == f"{tmp_path} is not a file"
    (tmp_path / "verdict.json").touch()
    assert "--html FILE" in refusal(tmp_path).hint


def test_one_enormous_line_is_refused_soon_and_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.truncate(40 << 30)  # sparse: 40 GiB of zeros, and no newline
    tracemalloc.start()
    start = time.process_time()
    error = refusal(path)
    spent = time.process_time() - start
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert str(error) == f"line 1 of {path} is over 64 MiB"
    assert spent < 2.0
    assert most < 2.5 * LONGEST_LINE


def test_a_line_that_is_long_and_a_record_is_read(path: Path) -> None:
    long = replace(RUN.records[0], reason="x" * (8 << 20))
    with RunWriter(path) as writer:
        writer.record(long)
    assert read_run(path).records[0] == long


needs_dev_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has"
)


@needs_dev_full
def test_a_full_disk_leaves_what_was_written_and_says_how_to_go_on() -> None:
    with RunWriter(Path("/dev/full")) as writer, pytest.raises(Incomplete) as caught:
        writer.record(RUN.records[0])
    assert caught.value.exit_code == 4
    assert str(caught.value) == "/dev/full cannot be written on: No space left on device"
    assert (
        caught.value.hint
        == "free some space, then measure the missing cases with --resume /dev/full"
    )


def test_a_record_cut_short_by_the_limit_of_a_file_is_said_and_the_others_stand(path: Path) -> None:
    """The kernel takes what fits, and says that it was less."""
    size = path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunWriter(path) as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        try:
            with pytest.raises(Incomplete, match="cannot be written on"):
                writer.record(matmul(RUN.header, 1024, 1e-3))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.stat().st_size == size + 100
    again = read_run(path)
    assert again.records == RUN.records
    assert len(again.problems) == 1


def test_a_file_that_cannot_be_opened_is_the_callers_slip(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "run.jsonl"):
        with pytest.raises(UsageError, match="cannot be written") as caught:
            RunWriter(path)
        assert caught.value.exit_code == 2
        assert caught.value.hint == "choose another --out"


def test_a_writer_adds_to_what_is_there(path: Path) -> None:
    before = path.read_bytes()
    write(path, OTHER)
    assert path.read_bytes().startswith(before)
    assert read_runs(path) == (RUN, OTHER)


def test_a_second_writer_is_refused_and_names_the_process_that_writes(path: Path) -> None:
    with RunWriter(path) as one:
        with pytest.raises(CannotMeasure, match=f"{path} is being written by process") as caught:
            RunWriter(path)
        assert caught.value.exit_code == 3
        if Path("/proc/locks").exists():
            assert f"process {os.getpid()}" in str(caught.value)
        one.record(RUN.records[0])
    with RunWriter(path) as again:
        again.record(RUN.records[1])


def test_a_fresh_file_takes_the_place_of_nothing_and_follows_no_link(
    path: Path, tmp_path: Path
) -> None:
    before, link = path.read_bytes(), tmp_path / "link.jsonl"
    link.symlink_to(path)
    for place in (path, link):
        with pytest.raises(UsageError, match="cannot be written: File exists"):
            RunWriter(place, fresh=True)
    assert path.read_bytes() == before


def removed(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere.jsonl"))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def exchanged(path: Path) -> None:
    path.unlink()
    path.write_text("another file")


def without_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("change", [removed, moved, emptied, exchanged, without_folder])
def test_a_run_whose_file_is_lost_meanwhile_is_whole_in_another_that_is_named(
    change: Callable[[Path], None], late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "runs" / "run.jsonl"
    first, *others = RUN.records
    with pytest.raises(CannotMeasure) as caught, RunWriter(path, fresh=True) as writer:
        writer.header(RUN.header)
        writer.record(first)
        if not late:
            change(path)
        for record in others:
            writer.record(record)
        if late:
            change(path)
    assert caught.value.exit_code == 3
    assert f"the whole run is in {writer.path}" in str(caught.value)
    assert writer.path != path
    assert read_run(writer.path) == RUN


def test_what_was_in_a_resumed_file_is_rescued_with_it(path: Path) -> None:
    more = replace(RUN.records[0], pass_index=7)
    with pytest.raises(CannotMeasure), RunWriter(path) as writer:
        writer.resume()
        path.write_bytes(b"")
        writer.record(more)
    assert read_run(writer.path).records == (*RUN.records, more)


def test_a_file_that_is_left_alone_is_no_error_and_no_second_file(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl")
    assert [file.name for file in tmp_path.iterdir()] == ["run.jsonl"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc, which Linux has")
def test_a_closed_writer_holds_no_file(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    write(tmp_path / "run.jsonl")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


HOSTILE = (0, -1, 1e308, 5e-324, 10**30, 10**400, "\x1b[31m[bold]x", "", None, [], True)


def values_in(parent: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each dict or list in *parent* with the key of each value, and of the first of a list.

    The caller may exchange the value and put it back.
    """
    inner = list(parent.items()) if isinstance(parent, dict) else list(enumerate(parent[:1]))
    for key, item in inner:
        yield parent, key
        if isinstance(item, dict | list):
            yield from values_in(item)


def test_no_value_in_a_run_file_breaks_the_reader_or_escapes_to_the_terminal(
    tmp_path: Path,
) -> None:
    text = text_of(run_file("h200-vector-add"))
    header, record, *_ = [json.loads(s) for s in text.splitlines() if s.strip()]
    used = ("memory_bandwidth", "boost_clock", "copy_bandwidth")  # the others are read like these
    cut = {**header}
    for name in ("peaks", "ceilings"):
        figures = {k: v for k, v in header[name]["figures"].items() if k in used}
        cut[name] = {**header[name], "compute": header[name]["compute"][:1], "figures": figures}
    file = tmp_path / "run.jsonl"
    before = json.dumps([cut, record])
    for at, (parent, key) in [
        (i, v) for i, line in enumerate((cut, record)) for v in values_in(line)
    ]:
        lines, value = [json.dumps(line) for line in (cut, record)], parent[key]
        for hostile in HOSTILE:
            parent[key] = hostile
            lines[at] = json.dumps((cut, record)[at])
            file.write_text("\n".join(lines))
            with contextlib.suppress(GpuperfError):
                for run in read_runs(file):
                    rendered = render_run(run, "table")
                    # Both renderers are given the same cells.
                    rendered += render_run(run, "md") if isinstance(hostile, str) else ""
                    assert "\x1b" not in rendered
        parent[key] = value
    assert json.dumps([cut, record]) == before


@pytest.mark.parametrize("time_s", [1e308, -1e300, 1e-300])
def test_times_that_no_call_takes_are_no_record(tmp_path: Path, time_s: float) -> None:
    lines = [line for line in text_of(run_file("h200-vector-add")).splitlines() if line.strip()]
    record = json.loads(lines[1])
    for samples in record["times"].values():
        samples["values_s"] = [time_s] * 3
    file = tmp_path / "run.jsonl"
    file.write_text("\n".join([lines[0], json.dumps(record), *lines[2:]]))
    for read in (read_run, read_summary):
        assert (
            f"line 2 is not a whole record (its times are from {time_s:.3g} to"
            in (read(file).problems[0])
        )


def test_a_line_of_many_beginnings_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text('{"run":"' * 250_000 + '"type":"header"')
    start = time.process_time()
    with pytest.raises(RunFileError):
        read_runs(file)
    assert time.process_time() - start < 2


@pytest.fixture
def packed(path: Path) -> Path:
    """The run file again, compressed by gzip."""
    target = path.with_name("packed.jsonl.gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target


def test_a_compressed_run_is_read_like_the_plain_one(path: Path, packed: Path) -> None:
    assert read_run(packed) == read_run(path)
    assert read_summary(packed).records == read_summary(path).records
    renamed = packed.rename(packed.with_name("renamed.jsonl"))
    assert read_run(renamed) == read_run(path)


def test_two_compressed_runs_merge_with_cat(packed: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.jsonl", OTHER)
    packed.write_bytes(packed.read_bytes() + gzip.compress(other.read_bytes()))
    assert read_runs(packed) == (RUN, OTHER)


def test_what_expands_without_end_is_refused_in_little_memory(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.jsonl.gz"
    line = b" " * ((1 << 20) - 1) + b"\n"
    bomb.write_bytes(gzip.compress(line, 9) * (MOST_EXPANDED // len(line) + 8))
    assert bomb.stat().st_size < 1 << 20
    tracemalloc.start()
    assert "bomb.jsonl.gz expands to over 256 MiB" in str(refusal(bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize("damage", ["cut", "wrong checksum", "no deflate", "two bytes", "any"])
def test_a_broken_gzip_file_is_refused(packed: Path, damage: str) -> None:
    data = packed.read_bytes()
    packed.write_bytes(
        {
            "cut": data[: len(data) // 2],
            "wrong checksum": data[:-8] + b"\0" * 8,
            "no deflate": data[:10] + b"\xff" * 100,
            "two bytes": data[:2],
            "any": b"\x1f\x8b\x08\x00" + bytes(range(256)),
        }[damage]
    )
    assert "packed.jsonl.gz is broken as a gzip file: " in str(refusal(packed))


def test_nothing_is_added_to_a_compressed_run(packed: Path) -> None:
    before = packed.read_bytes()
    with pytest.raises(UsageError, match="is compressed, so nothing can be added"):
        RunWriter(packed)
    assert packed.read_bytes() == before


def test_nothing_is_added_to_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!DOCTYPE html>\n<html></html>\n")
    with pytest.raises(UsageError, match="is a page, so nothing can be added"):
        RunWriter(page)
    assert page.read_text().endswith("</html>\n")
