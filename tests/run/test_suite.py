"""Is a suite read as it stands, and is every mistake in one found before anything is measured?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import SAXPY, CommandLine
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.errors import UnknownName, UsageError
from gpuperf.run.store import read_run
from gpuperf.run.suite import LARGEST_FILE, load_suite, parse_suite, suites

PLAIN = 'schema = 1\n[[case]]\nop = "matmul"\nsizes = "64"\n'


@pytest.mark.parametrize("name", suites())
def test_each_suite_of_gpuperf_is_read(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    assert suite.about.endswith(".")
    assert suite.entries


def test_the_suite_ci_holds_these_cases_under_these_conditions() -> None:
    """What a gate is judged by changes only on purpose."""
    suite = load_suite("ci")
    asked = suite.conditions
    assert (asked.precision, asked.budget_s, asked.counting) == (0.02, 0.15, "off")
    assert [(e.op, e.sizes, ",".join(e.implementations), dict(e.axes)) for e in suite.entries] == [
        ("matmul", "512,1024,2048,4096", "torch", {}),
        ("matmul", "512,1024", "triton", {"tile": "64x128x64"}),
        ("matmul", "2048,4096", "triton", {"tile": "128x256x64"}),
        ("matmul", None, "torch", {"m": "16", "n": "4096", "k": "4096"}),
        ("attention", None, "triton_flash,sdpa_flash", {"batch": "2", "seq": "1024,2048"}),
        ("softmax", None, "fused", {"m": "8192", "n": "1024,4096"}),
        ("layernorm", None, "triton", {"m": "8192", "n": "4096"}),
        ("rmsnorm", None, "triton", {"m": "8192", "n": "4096"}),
        ("sincos", "16M", "triton", {"dtype": "fp32"}),
        ("vector_add", None, "torch", {"n": "1M,16M", "dtype": "fp32"}),
    ]


def test_there_are_the_suites_that_are_told_of() -> None:
    assert suites() == ("ci", "collectives", "full", "quick", "screen")


def test_a_suite_says_what_a_command_line_would() -> None:
    text = (
        'schema = 1\n[conditions]\nprecision = 0.05\nbudget_s = 1\ntimer = "wall"\n'
        '[[case]]\nop = "attention"\nhead-dim = "64"\nimpl = "eager, flex"\n'
    )
    suite = parse_suite(text, "mine")
    (entry,) = suite.entries
    assert (entry.op, entry.sizes, entry.implementations) == ("attention", None, ("eager", "flex"))
    assert entry.axes == {"head_dim": "64"}
    told = suite.conditions
    assert (told.precision, told.budget_s, told.timer, told.counting) == (0.05, 1.0, "wall", "off")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the schema of the suite 'mine' is None"),
        ("schema = 2\n", "is 2"),
        ("schema = ", "is not TOML"),
        ("schema = 1\n", "has no cases"),
        ("schema = 1\ncase = 3\n", "has no cases"),
        ("schema = 1\n[[case]]\nsizes = '64'\n", "names no workload"),
        (PLAIN + "m = 64\n", "m of a case of the suite 'mine' is 64, and must be text"),
        (PLAIN + "[conditions]\nbudget = 1\n", "has in [conditions] the unknown key 'budget'"),
        (
            PLAIN + "[conditions]\nprecision = true\n",
            "precision of the suite 'mine' is not a number",
        ),
        (PLAIN + "[conditions]\nprecision = nan\n", "precision of the suite 'mine' is nan"),
        (PLAIN + "[conditions]\nprecision = 0\n", "is 0"),
        (PLAIN + "[conditions]\ntimer = 'sundial'\n", "no timer 'sundial'"),
        (PLAIN + "owner = 1\n", "must be text"),
        (PLAIN + "m = " + "1" * 5000 + "\n", "is not TOML"),
        (PLAIN + "m = 0x" + "f" * 5000 + "\n", "m of a case of the suite 'mine' is a huge number"),
        ("schema = 0x" + "f" * 5000 + "\n", "is a huge number"),
        ("schema = 1\nowners = 1\n" + PLAIN[11:], "'owners'"),
        ("schema = 1\nconditions = 1\n" + PLAIN[11:], "are not a table"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_suite(text, "mine")
    assert words in str(caught.value)
    assert caught.value.hint


@given(st.text(max_size=200))
def test_any_text_is_a_suite_or_a_sentence(text: str) -> None:
    try:
        parse_suite(text, "mine")
    except UsageError as error:
        assert "\n\n" not in str(error)


def test_a_suite_that_is_not_there_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no suite 'cii'"):
        load_suite("cii")
    with pytest.raises(UsageError, match="there is no suite"):
        load_suite(str(tmp_path / "no.toml"))
    (tmp_path / "long.toml").write_text("#" * (LARGEST_FILE + 1))
    with pytest.raises(UsageError, match="is over 200,000 bytes"):
        load_suite(str(tmp_path / "long.toml"))
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        load_suite(str(tmp_path / "odd.toml"))


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine.at(tmp_path_factory.mktemp("suite"))


SMALL = (
    'schema = 1\nabout = "two workloads"\n[conditions]\nprecision = 0.5\nbudget_s = 0.02\n'
    '[[case]]\nop = "matmul"\nsizes = "32,64"\nimpl = "torch"\n'
    '[[case]]\nop = "vector_add"\nn = "1k"\nimpl = "torch"\n'
    '[[case]]\nop = "matmul"\nsizes = "64"\nimpl = "torch"\n'
)


def test_a_suite_is_one_run_of_several_workloads(at: CommandLine) -> None:
    (at.folder / "mine.toml").write_text(SMALL)
    words = ("--device", "cpu", "--peaks", "peaks.toml", "--out", "suite", "--format", "json")
    ended = at("run", "--suite", "./mine.toml", *words)
    assert ended.code == 0, ended.err
    header, *records = (
        json.loads(line) for line in at.run_file("suite").read_text().split("\n") if line
    )
    assert [case["op"] for case in header["plan"]] == ["matmul", "matmul", "vector_add"]
    assert [record["status"] for record in records] == ["ok"] * 3
    assert header["contract"]["budget_s"] == 0.02


def test_what_all_processes_of_a_suite_measured_is_reported(at: CommandLine) -> None:
    (at.folder / "mine.toml").write_text(SMALL)
    words = ("--device", "cpu", "--peaks", "peaks.toml", "--out", "twice", "--format", "json")
    ended = at("run", "--suite", "./mine.toml", "--passes", "2", *words)
    assert ended.code == 0, ended.err
    rows = json.loads(ended.out)["rows"]
    assert [row["processes"] for row in rows] == [2, 2, 2]
    assert all(row["time_across_processes_high_s"] >= row["time_s"] for row in rows)
    indices = sorted(record.pass_index for record in read_run(at.run_file("twice")).records)
    assert indices == [0] * 3 + [1] * 3


# Only the first process can compute this.
ONCE = """
    import os, pathlib
    first = pathlib.Path("first")
    if not first.exists():
        first.write_text(str(os.getpid()))
    if first.read_text() != str(os.getpid()):
        raise RuntimeError("no second process")
"""


def test_a_case_that_fails_in_a_later_process_fails_the_run(tmp_path: Path) -> None:
    here = '    """One pass over memory."""'
    at = CommandLine.at(tmp_path, saxpy=SAXPY.replace(here, here + ONCE))
    case = '[[case]]\nop = "./saxpy.py"\nn = "1k"\nimpl = "eager,fused"\n'
    (tmp_path / "mine.toml").write_text(f"schema = 1\n[conditions]\nbudget_s = 0.02\n{case}")
    words = ("run", "--suite", "./mine.toml", "--device", "cpu", "--peaks", "peaks.toml")
    ended = at(*words, "--passes", "2")
    assert ended.code == 3, ended.err
    assert "1 of 2 cases failed" in ended.err
    assert "process 2: " in ended.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL.replace("vector_add", "vector_ad"), "no workload 'vector_ad'"),
        (SMALL.replace('n = "1k"', 'q = "1k"'), "no axis of vector_add 'q'"),
        (SMALL.replace('"32,64"', '"0"'), "--sizes"),
    ],
)
def test_what_the_catalogue_does_not_know_is_refused_before_anything_is_measured(
    at: CommandLine, text: str, words: str
) -> None:
    (at.folder / "bad.toml").write_text(text)
    ended = at("run", "--suite", "./bad.toml", "--device", "cpu", "--out", "bad")
    assert ended.code == 2
    assert words in ended.err
    assert not list((at.folder / "bad").glob("*.jsonl"))
