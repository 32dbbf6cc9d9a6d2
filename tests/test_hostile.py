"""Does text of other origin stay text, and is a file that is too large, or no file, refused?

Everything here runs in the tests' own process; what needs a process is in `test_bad_input`.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuperf.cli import app
from gpuperf.cli.printing import draw
from gpuperf.model.codec import to_builtins
from gpuperf.model.text import clean_json
from gpuperf.report.cells import to_csv
from gpuperf.report.plain import plain_table
from gpuperf.runner.store import read_run

MEASURED = Path(__file__).parent.parent / "docs" / "measured"
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
FREE = {"op", "implementation", "reason", "message", "hint", "name", "command", "region", "run",
        "source", "condition", "peaks_reason", "label", "created", "gpuperf", "where", "kernel",
        "of", "module"}  # fmt: skip
STUDIES = {
    "roofline": "h200-matmul-counters", "compare": "h200-compare-softmax-4k",
    "alignment": "h200-suggest", "waves": "h200-waves-triton", "profile": "h200-profile-eager",
    "explained": "h200-explain-attention", "import": "h200-sincos-import",
    "timing-check": "h200-timing-check",
}  # fmt: skip


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
        lines = (MEASURED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
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


@pytest.mark.parametrize(
    "path", sorted(MEASURED.glob("*.jsonl")), ids=lambda path: str(path.stem)
)
def test_a_line_without_anything_hidden_is_read_as_it_is(path: Path) -> None:
    for line in path.read_bytes().splitlines():
        assert clean_json(line) is line or json.loads(clean_json(line)) == json.loads(line)


@pytest.mark.parametrize(
    "line", [b'{"a": "\\ud800"', b"\xff\xfe", b"[" * 100_000 + b'"\\n"', b'"\\x"', b'"\\'],
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
        "ab": ["x y", {"n": 12345678901234567890123, "f": 0.1}], "z": "",
    }  # fmt: skip


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
        ("=1+1", "'=1+1"), ("+cmd|x", "'+cmd|x"), ("-2+3", "'-2+3"), ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'=1"), ("\r=1", "'=1"), ("a\rb", "a b"), ("a\r\nb", "a b"),
        ("-1.5e-3", "-1.5e-3"),
        ("+7", "+7"), ("-", "-"), (-1.5, "-1.5"), (None, ""), (True, "True"), ("a=1", "a=1"),
    ],
)  # fmt: skip
def test_a_cell_of_csv_is_a_number_or_a_text_and_never_a_formula(
    value: object, written: str
) -> None:
    written_rows = to_csv([{"=x": value}], ["=x"])
    assert "\r" not in written_rows
    assert list(csv.reader(io.StringIO(written_rows))) == [["'=x"], [written]]


def test_the_head_of_a_markdown_table_is_text_too() -> None:
    shown = plain_table([], ["n<img src=x>", "a|b"], [["1", "2"]], "md")
    assert "<img" not in shown
    assert shown.splitlines()[0].count(" | ") == 1
