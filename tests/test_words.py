"""Does a slip on the command line get a sentence that helps, in the process itself?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gpuperf
from gpuperf import app
from gpuperf.errors import UnknownName, UsageError
from gpuperf.model.workload import Description
from gpuperf.run.cache import keep
from gpuperf.run.catalogue import Catalogue, _builtin_key

GOLDEN = Path(__file__).parent / "golden"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs a command line in this process: its exit code, stdout and stderr."""
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gpuperf", *words])
        code = app._guarded(app._run)
        out, err = capsys.readouterr()
        return code, out, err

    return run


MATMUL = ("roofline", "matmul")

SLIPS = [
    ((*MATMUL, "--sizes", "64", "--sizes", "128"), "--sizes is given twice", "commas join"),
    ((*MATMUL, "--out", ""), "--out names no folder", "gpuperf-runs"),
    ((*MATMUL, "--precision", "5"), "--precision 5 is not from 0.0001 to 1", "1%"),
    ((*MATMUL, "--precision", "nan"), "--precision nan is not a number", "0.01 is 1 %"),
    ((*MATMUL, "--budget", "nan"), "--budget: 'nan' is not a duration", "2s"),
    ((*MATMUL, "--budget", "2h"), "--budget: '2h' is not a duration", "2s"),
    ((*MATMUL, "--budget", "5000"), "--budget 5000 is over 3600 s", "2s"),
    ((*MATMUL, "--deadline", "10ms"), "--deadline 10ms is under 1 s", "--deadline 1"),
    ((*MATMUL, "--gap", "5min"), "--gap 5min is over 60 s", "2s"),
    ((*MATMUL, "--data", "normal"), "no data 'normal'; did you mean 'randn'?", "uniform"),
    (
        ("run", "--suite", "nosuch"),
        "no suite 'nosuch'",
        "known: ci, collectives, full, quick, screen",
    ),
    (("devices", "b9000"), "no device 'b9000'", "gpuperf devices"),
]


@pytest.mark.parametrize(("words", "sentence", "hint"), SLIPS, ids=lambda v: str(v)[:40])
def test_a_slip_is_told_in_a_sentence_with_a_hint(
    command: Command, words: tuple[str, ...], sentence: str, hint: str
) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert hint in err.split("hint: ")[1]


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("nope", ""),
        ("matmull", "; did you mean 'matmul'?"),
        ("gemm", "; did you mean 'matmul'?"),
        ("soft", "; did you mean 'softmax'?"),
        ("c", "; did you mean 'conv' or 'copy'?"),
    ],
)
def test_a_name_is_suggested_where_it_is_near_enough(name: str, guess: str) -> None:
    known = ["copy", "conv", "matmul", "softmax", "read"]
    assert str(UnknownName("workload", name, known)) == f"no workload {name!r}{guess}"


@pytest.mark.parametrize(
    ("words", "shown", "hidden"),
    [
        (("devices", "H100"), "h100-pcie", "h200-sxm"),
        (("devices", "h200"), "h200-nvl", "h100-pcie"),
        (("devices", "h200-sxm"), "h200-sxm · nvidia", "h200-nvl"),
    ],
    ids=["name", "prefix", "id"],
)
def test_a_device_is_found_by_its_id_or_a_part_of_its_name(
    command: Command, words: tuple[str, ...], shown: str, hidden: str
) -> None:
    code, out, _ = command(*words)
    assert code == 0
    assert shown in out
    assert hidden not in out


@pytest.mark.parametrize(
    "words", [("-h",), ("roofline", "-h"), ("gate", "-h"), ("gate", "ab", "-h")], ids=" ".join
)
def test_minus_h_is_help_everywhere(command: Command, words: tuple[str, ...]) -> None:
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    assert out == command(*words[:-1], "--help")[1]
    assert "Usage: gpuperf" in out


def attention() -> Description:
    from gpuperf.kernels.attention import ATTENTION

    return ATTENTION.describe("gpuperf.kernels")


@pytest.mark.parametrize("words", [("--op", "attention"), ("attention",), ("--op=attention",)])
def test_the_help_of_a_workload_lists_its_axes(command: Command, words: tuple[str, ...]) -> None:
    keep("catalogue", _builtin_key(), Catalogue((attention(),)))
    out = " ".join(command("roofline", *words, "--help")[1].split())
    assert "Axes of attention, with their defaults: --batch (4), --heads (16)" in out
    assert "--head- dim (64)" in out.replace("--head-dim", "--head- dim")


def test_help_starts_no_worker_where_nothing_is_cached(command: Command) -> None:
    code, out, _ = command("roofline", "attention", "--help")
    assert code == 0
    assert "`gpuperf list OP` shows them" in out


@pytest.mark.parametrize("verb", ["show", "explain"])
def test_a_file_without_a_record_ends_with_the_exit_code_of_nothing_measured(
    command: Command, tmp_path: Path, verb: str
) -> None:
    whole = (GOLDEN / "run_schema_9.jsonl").read_text().strip().splitlines()
    header = next(line for line in whole if '"type":"header"' in line)
    (tmp_path / "cut.jsonl").write_text(header + "\n")
    code, _, err = command(verb, "cut.jsonl")
    assert code == 3
    assert "cut.jsonl has no record" in err
    assert "--resume cut.jsonl" in err


def test_a_large_file_is_announced_before_it_is_read(command: Command, tmp_path: Path) -> None:
    text = (GOLDEN / "run_schema_9.jsonl").read_text()
    (tmp_path / "large.jsonl").write_text(text + (" " * 1023 + "\n") * (17 << 10))
    code, _, err = command("show", "large.jsonl")
    assert code == 0
    assert err.startswith("large.jsonl: reading 17 MiB")


def test_kernels_are_asked_of_a_profile_alone(command: Command) -> None:
    code, out, err = command("show", str(GOLDEN / "run_schema_9.jsonl"), "--by", "kernels")
    assert (code, out) == (2, "")
    assert "is not a profile" in err


def test_two_runs_of_cases_are_led_to_the_gate(command: Command) -> None:
    path = str(GOLDEN / "run_schema_9.jsonl")
    code, _, err = command("show", path, path)
    assert code == 2
    assert "gpuperf gate compare" in err


def test_the_module_runs_as_the_command_does() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gpuperf", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert done.stdout == f"gpuperf {gpuperf.__version__}\n"


def test_the_public_names_can_be_completed() -> None:
    assert set(gpuperf.__all__) <= set(dir(gpuperf))


def test_precision_and_budget_take_percent_and_units() -> None:
    from gpuperf.verb import parse

    assert parse.precision("1%") == parse.precision("0.01") == 0.01
    budget = parse.seconds_between("budget", 0.0, 3600.0)
    assert (budget("500ms"), budget("2"), budget("2s"), budget("1min")) == (0.5, 2.0, 2.0, 60.0)
    with pytest.raises(UsageError):
        parse.precision("half")


def test_threads_of_a_cpu_are_given_to_its_workers(
    monkeypatch: pytest.MonkeyPatch, real_start: None
) -> None:
    from gpuperf.verb.workers import THREAD_VARIABLES, make_supervisor

    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "2")  # and put back after the test
    with make_supervisor("cpu", threads=1) as supervisor:
        assert supervisor.open().device.sm_count == 1
        assert supervisor.open().fingerprint.hard["sm_count"] == 1
