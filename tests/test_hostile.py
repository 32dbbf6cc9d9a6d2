"""Does text of other origin stay text, and is a file that is too large, or no file, refused?

Everything here runs in the tests' own process; what needs a process is in `test_bad_input`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured import RUN_FILES, name_of, run_file, text_of

from gpuperf import app
from gpuperf.errors import UsageError
from gpuperf.gate.project import load_project, parse_project
from gpuperf.model.codec import to_builtins
from gpuperf.model.text import clean_json
from gpuperf.model.toml import parse_toml
from gpuperf.profile.trace import eventstream, kineto
from gpuperf.profile.trace.kineto import read_trace
from gpuperf.roofline import rows
from gpuperf.roofline.formats import render_run
from gpuperf.roofline.terminal import terminal_roofline
from gpuperf.run.store import read_run
from gpuperf.show.data import to_csv
from gpuperf.show.markdown import to_markdown
from gpuperf.show.table import Column, Table, fill
from gpuperf.verb.printing import draw

Answer = tuple[int, str, str]  # exit code, stdout, stderr
Command = Callable[..., Answer]


@pytest.fixture
def gpuperf(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The command line in this process and an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))

    def command(*words: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["gpuperf", *map(str, words)])
        capsys.readouterr()
        code = app._guarded(app._run)
        out, err = capsys.readouterr()
        return code, out, err

    return command


# A formula for spreadsheets, a tag for HTML, an escape for terminals, a line of its own.
EVIL = '=HYPERLINK("http://evil.example","x")<img src=x>\x1b[31m\x9b\x00\r\n\t'
FREE = {
    "op",
    "implementation",
    "reason",
    "message",
    "hint",
    "name",
    "command",
    "region",
    "run",
    "source",
    "condition",
    "peaks_reason",
    "label",
    "created",
    "gpuperf",
    "where",
    "kernel",
    "of",
    "module",
}
STUDIES = {
    "roofline": "h200-matmul-counters",
    "compare": "h200-compare-softmax-4k",
    "alignment": "h200-suggest",
    "waves": "h200-waves-triton",
    "profile": "h200-profile-eager",
    "explained": "h200-explain-attention",
    "import": "h200-sincos-import",
    "timing-check": "h200-timing-check",
}


def poisoned(value: Any, key: str = "") -> Any:
    """*value* with `EVIL` before every text that is free to be anything, and after every axis."""
    if isinstance(value, str):
        return EVIL + value if key in FREE and value else value
    if isinstance(value, dict):
        free = key in ("hard", "soft", "live")
        return {(k + EVIL if free else k): poisoned(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(one, key) for one in value]
    return value


@pytest.fixture(scope="module")
def poisoned_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run file of each study, poisoned."""
    found = {}
    for study, name in STUDIES.items():
        path = tmp_path_factory.mktemp("poisoned") / f"{study}.jsonl"
        lines = text_of(run_file(name)).splitlines()
        told = (json.dumps(poisoned(json.loads(line))) for line in lines if line)
        path.write_text("\n".join(told) + "\n", encoding="utf-8")
        found[study] = path
    return found


def texts(value: Any) -> list[str]:
    """Every text in *value*, keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [t for pair in value.items() for one in pair for t in texts(one)]
    if isinstance(value, list | tuple):
        return [text for one in value for text in texts(one)]
    return []


@pytest.mark.parametrize("study", STUDIES)
def test_a_run_file_is_read_without_anything_that_does_not_print(
    poisoned_files: dict[str, Path], study: str
) -> None:
    run = read_run(poisoned_files[study])
    assert run.problems == ()
    assert "=HYPERLINK" in run.header.run
    found = texts([to_builtins(run.header), [to_builtins(record) for record in run.records]])
    assert [text for text in found if not text.isprintable()] == []


@pytest.mark.parametrize("path", RUN_FILES, ids=name_of)
def test_a_line_without_anything_hidden_is_read_as_it_is(path: Path) -> None:
    for line in text_of(path).encode().splitlines():
        assert clean_json(line) is line or json.loads(clean_json(line)) == json.loads(line)


@pytest.mark.parametrize(
    "line",
    [b'{"a": "\\ud800"', b"\xff\xfe", b"[" * 100_000 + b'"\\n"', b'"\\x"', b'"\\'],
    ids=["cut", "bytes", "deep", "no escape", "half an escape"],
)
def test_what_is_not_json_is_left_to_its_decoder(line: bytes) -> None:
    assert clean_json(line) == line


def test_keys_and_values_are_cleaned_wherever_they_are() -> None:
    line = (
        b'{"a\\u001bb": ["x\\r\\ny", {"n": 12345678901234567890123, "f": 0.1}],'
        b' "\xc2\x9bz": "\x7f"}'
    )
    assert json.loads(clean_json(line)) == {
        "ab": ["x y", {"n": 12345678901234567890123, "f": 0.1}],
        "z": "",
    }


@pytest.mark.parametrize("study", STUDIES)
@pytest.mark.parametrize("format", ["table", "csv", "md", "json"])
def test_no_text_of_a_run_file_is_obeyed_by_what_shows_it(
    gpuperf: Command, poisoned_files: dict[str, Path], study: str, format: str
) -> None:
    for more in [(), ("--by", "kernels")] if study == "profile" else [()]:
        code, out, err = gpuperf("show", poisoned_files[study], "--format", format, *more)
        assert code == 0, err
        for text in (out, err):
            assert [c for c in set(text) if not c.isprintable()] in ([], ["\n"])
        if format == "md":
            assert "<img" not in out
            assert "http:" not in out
        if format == "csv":
            cells = [cell for row in csv.reader(io.StringIO(out)) for cell in row]
            assert any(cell.startswith("'=HYPERLINK") for cell in cells)
            assert [cell for cell in cells if cell[:1] in ("=", "@", "+")] == []


@pytest.mark.parametrize("study", STUDIES)
def test_a_chart_of_hostile_texts_is_xml_and_warns_of_nothing(
    poisoned_files: dict[str, Path], study: str, tmp_path: Path
) -> None:
    run = read_run(poisoned_files[study])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw(run, [tmp_path / "c.svg", tmp_path / "c.png"])
    ElementTree.parse(tmp_path / "c.svg")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd|x", "'+cmd|x"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'=1"),
        ("\r=1", "'=1"),
        ("a\rb", "a b"),
        ("a\r\nb", "a b"),
        ("-1.5e-3", "-1.5e-3"),
        ("+7", "+7"),
        ("-", "-"),
        (-1.5, "-1.5"),
        (None, ""),
        (True, "True"),
        ("a=1", "a=1"),
    ],
)
def test_a_cell_of_csv_is_a_number_or_a_text_and_never_a_formula(
    value: object, written: str
) -> None:
    written_rows = to_csv([{"=x": value}], ["=x"])
    assert "\r" not in written_rows
    assert list(csv.reader(io.StringIO(written_rows))) == [["'=x"], [written]]


def test_the_head_of_a_markdown_table_is_text_too() -> None:
    shown = to_markdown(Table(fill([Column("n<img src=x>"), Column("a|b")], [["1", "2"]])))
    assert "<img" not in shown
    assert shown.splitlines()[0].count(" | ") == 1


LONG = "x" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ("show", LONG),
        ("show", f"{LONG}.jsonl"),
        ("explain", LONG),
        ("import", f"{LONG}.json"),
        ("import", f"{LONG}.ncu-rep"),
        ("roofline", "--resume", LONG),
        ("gate", "check", LONG),
        ("gate", "compare", LONG, LONG),
        ("gate", "ab", "--resume", LONG),
        ("baseline", "set", LONG),
        ("baseline", "show", LONG),
        ("run", "--suite", f"{LONG}.toml"),
        ("devices", f"{LONG}.toml"),
        ("devices", "--lint", f"{LONG}.toml"),
        ("history", "list", "--folder", LONG),
        ("profile", LONG),
        (LONG,),
    ],
    ids=lambda words: " ".join(word.replace(LONG, "LONG") for word in words),
)
def test_a_name_of_5000_characters_is_one_short_sentence(
    gpuperf: Command, words: tuple[str, ...]
) -> None:
    code, out, err = gpuperf(*words)
    assert (code, out) == (2, "")
    said, hint = err.splitlines()
    assert said.startswith("gpuperf: ")
    assert "internal error" not in said
    assert len(said) < 1100
    assert len(hint) < 1100


def test_a_message_keeps_both_ends_of_a_long_name_and_is_itself_bounded() -> None:
    assert app._brief("no run " + "a" * 300) == "no run " + "a" * 300
    brief = app._brief(f"no run /{LONG}.jsonl here")
    assert brief.startswith("no run /xxx")
    assert brief.endswith("x.jsonl here")
    assert "…" in brief
    assert len(app._brief("word " * 5000)) == app.LONGEST_MESSAGE
    assert app._brief("a\x1b[31mb\r\nc") == "a[31mb c"


DOTTED = "a." * 3000 + "b = 1\n"


@pytest.mark.parametrize(
    "text",
    [
        DOTTED,
        f"[{DOTTED[:-5]}]\n",
        f"x = {{{DOTTED[:-1]}}}\n",
        '"a\\"" . ' * 3000 + "b = 1\n",
        "'a'." * 3000 + "b = 1\n",
    ],
    ids=["key", "table", "inline", "quoted", "literal"],
)
def test_a_key_of_thousands_of_parts_is_refused_before_it_is_parsed(text: str) -> None:
    with pytest.raises(ValueError, match=r"a key on line 2 has over 16 parts"):
        parse_toml("schema = 1\n" + text)


def test_sixteen_parts_and_dots_in_texts_are_read() -> None:
    key = ".".join("a" * 16)
    found = parse_toml(f'{key} = "see https://docs.x.y/1.2.3 ... and so on. End."\n')
    assert str(found).count("{") == 16
    with pytest.raises(ValueError, match="nested too deep"):
        parse_toml("a = " + "[" * 100_000)


def test_every_reader_of_toml_refuses_such_a_key(gpuperf: Command, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("schema = 1\n" + DOTTED)
    for words in (("run", "--suite", "./s.toml"), ("devices", "--lint", "s.toml")):
        code, out, err = gpuperf(*words)
        assert (code, out) == (2, "")
        assert "a key on line 2 has over 16 parts" in err
    with pytest.raises(UsageError, match="a key on line 1 has over 16 parts"):
        parse_project(DOTTED)


EVENTS = b'{"traceEvents": ['
MIB = 1 << 20


@pytest.mark.parametrize(
    "unit",
    [b" ", b",", b"{},", b'{"ph": "X", "cat": "cpu_op", "name": "n", "ts": 1, "dur": 1},'],
    ids=["spaces", "commas", "empty events", "events"],
)
def test_a_small_file_that_unpacks_to_a_huge_trace_is_refused(tmp_path: Path, unit: bytes) -> None:
    path = tmp_path / "trace.json.gz"
    filling = gzip.compress(unit * (32 * MIB // len(unit)))
    path.write_bytes(gzip.compress(EVENTS) + filling * 100)  # 3 GB of text
    with pytest.raises(UsageError, match=r"grows over 200 times|none of its first"):
        read_trace(path)


@pytest.mark.parametrize("blank", [b" ", b","])
def test_blanks_without_an_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blank: bytes
) -> None:
    monkeypatch.setattr(eventstream, "MOST_BLANK", 2 * MIB)
    path = tmp_path / "trace.json"
    path.write_bytes(EVENTS + blank * (5 * MIB) + b"{}]}")
    with pytest.raises(UsageError, match="has over 2 MiB of blanks or commas in a row"):
        read_trace(path)


def test_a_trace_of_another_tool_is_refused_before_it_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, "MOST_OTHERS", 1000)
    path = tmp_path / "trace.json"
    own = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1.0, "dur": 1}'
    path.write_bytes(EVENTS + b"{}," * 1000 + own + b"]}")
    assert len(read_trace(path).operators.start) == 1
    path.write_bytes(EVENTS + b"{}," * 1001 + own + b"]}")
    with pytest.raises(UsageError, match=r"none of its first 1,001 events is torch.profiler's"):
        read_trace(path)


def test_the_reading_of_a_long_trace_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventstream, "NEWS", 1 * MIB)
    event = b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": %d.0, "dur": 1},\n'
    text = EVENTS + b"".join(event % i for i in range(40_000)) + b"{}]}"
    (tmp_path / "trace.json").write_bytes(text)
    heard: list[int] = []
    timeline = read_trace(tmp_path / "trace.json", heard.append)
    assert len(timeline.operators.start) == 40_000
    assert [size // MIB for size in heard] == list(range(1, len(text) // MIB + 1))


@pytest.mark.parametrize(
    "head", [b"", b"{", EVENTS, b'{"traceEvents": [{"ph": "X"},'], ids=["none", "{", "[", "event"]
)
def test_a_trace_that_is_a_hole_is_refused(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(head)
    os.truncate(path, 20 << 30)  # it takes no room
    with pytest.raises(UsageError, match=r"is not JSON|never ends"):
        read_trace(path)


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(
    gpuperf: Command, tmp_path: Path
) -> None:
    for name in ("p.jsonl", "p.json", "p.json.gz", "p.ncu-rep", "p.toml", "gpuperf.toml"):
        os.mkfifo(tmp_path / name)
    for words in (
        ("show", "p.jsonl"),
        ("explain", "p.jsonl"),
        ("import", "p.json"),
        ("import", "p.json.gz"),
        ("import", "p.ncu-rep"),
        ("run", "--suite", "./p.toml"),
        ("devices", "--lint", "p.toml"),
        ("roofline", "--resume", "p.jsonl"),
    ):
        code, out, err = gpuperf(*words)
        assert (code, out, len(err.splitlines())) == (2, "", 2), (words, err)
    with pytest.raises(UsageError, match="not a regular file"):
        load_project(tmp_path)


def test_a_full_stdout_is_one_sentence_and_exit_code_2(
    gpuperf: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", full)
        code, _, err = gpuperf("show", run_file("h200-copy"))
    assert code == 2
    said, hint = err.splitlines()
    assert said == "gpuperf: stdout cannot be written: No space left on device"
    assert "`gpuperf show` prints them again" in hint


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- <&- 2>&-"])
def test_closed_streams_change_no_exit_code_and_take_no_file(tmp_path: Path, closed: str) -> None:
    """What is printed must not go into a file that took the number of a closed stream."""
    run = run_file("h200-copy")
    start = f"{sys.executable} -c 'from gpuperf.app import main; main()'"
    words = f"{start} show {run} --chart {tmp_path}/c.svg {closed}"
    ended = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "Error" not in ended.stderr
    ElementTree.parse(tmp_path / "c.svg")


def test_a_table_and_a_roofline_of_one_run_place_each_record_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = read_run(run_file("h200-matmul-bf16"))
    placed: list[object] = []
    place = rows.place
    monkeypatch.setattr(rows, "place", lambda *given: placed.append(given) or place(*given))
    render_run(run, "table")
    terminal_roofline(run)
    assert len(placed) == len(run.records)
    again = read_run(run_file("h200-matmul-bf16"))
    render_run(again, "table")
    assert len(placed) == 2 * len(run.records), "another run is placed anew"
