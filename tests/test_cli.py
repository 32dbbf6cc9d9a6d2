"""Does the command line measure, print and keep what it promises, and start as fast as it should?

The commands run as a user runs them: another process, its stdout and stderr apart.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import subprocess
import sys
from ast import literal_eval
from collections.abc import Mapping
from pathlib import Path

import pytest
from command_line import QUICK, SAXPY, CommandLine, Ended

import gpuperf
from gpuperf.run import ceilings as ceilings_plan
from gpuperf.run.store import read_run
from gpuperf.verb.registry import verbs
from gpuperf.verb.verb import load


@pytest.fixture(scope="module")
def gpuperf_at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine.at(tmp_path_factory.mktemp("cli"), mine=SAXPY)


@pytest.fixture(scope="module")
def swept(gpuperf_at: CommandLine) -> Ended:
    """One sweep over a user's own file; many tests look at it."""
    assert gpuperf_at("list").code == 0  # the catalogue is known from here on
    return gpuperf_at("roofline", "--op", "./mine.py", "--sizes", "1k:4k", *QUICK, "--out", "swept")


@pytest.fixture(scope="module")
def run(gpuperf_at: CommandLine, swept: Ended) -> Path:
    return gpuperf_at.run_file("swept")


def test_adding_a_workload_is_one_file_and_nothing_else(swept: Ended, run: Path) -> None:
    assert len(SAXPY.strip().splitlines()) < 80
    assert swept.code == 0, swept.err
    kept = read_run(run)
    assert [r.case.id for r in kept.records] == [
        f"saxpy/{name}[n={n},dtype=fp32]" for name in ("eager", "fused") for n in (1024, 2048, 4096)
    ]
    assert {r.status for r in kept.records} == {"ok"}
    assert kept.records[0].work is not None
    assert kept.records[3].work is None


def test_the_table_shows_every_size_of_every_implementation(swept: Ended) -> None:
    assert "saxpy on" in swept.out
    for word in ("eager", "fused", "1024", "2048", "4096", "GB/s"):
        assert word in swept.out


def test_stderr_tells_the_device_the_progress_and_the_files(swept: Ended, run: Path) -> None:
    assert "measuring the CPU" in swept.err
    assert "saxpy/eager[n=1024,dtype=fp32]" in swept.err
    assert f"run file: swept/{run.name}" in swept.err


def test_charts_are_written_beside_the_run_file(run: Path) -> None:
    assert run.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in run.with_suffix(".svg").read_text()


def test_without_a_terminal_there_are_no_escape_codes(swept: Ended) -> None:
    assert "\x1b" not in swept.out + swept.err
    assert "\r" not in swept.out + swept.err


def test_show_prints_the_table_of_the_sweep_again(
    gpuperf_at: CommandLine, swept: Ended, run: Path
) -> None:
    shown = gpuperf_at("show", str(run))
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == swept.out


def test_show_draws_the_chart_again(gpuperf_at: CommandLine, run: Path, tmp_path: Path) -> None:
    chart = tmp_path / "again.svg"
    shown = gpuperf_at("show", str(run), "--chart", str(chart))
    assert (shown.code, shown.out) == (0, "")
    assert "<svg" in chart.read_text()


def test_a_run_is_shown_as_json_csv_and_markdown(gpuperf_at: CommandLine, run: Path) -> None:
    rows = json.loads(gpuperf_at("show", str(run), "--format", "json").out)["rows"]
    table = list(csv.DictReader(io.StringIO(gpuperf_at("show", str(run), "--format", "csv").out)))
    assert len(rows) == len(table) == 6
    assert [row["point.n"] for row in table] == [str(row["point"]["n"]) for row in rows]
    assert [float(row["time_s"]) for row in table] == [row["time_s"] for row in rows]
    marked = gpuperf_at("show", str(run), "--format", "md").out
    assert marked.count("\n| ") >= 6


def test_without_peaks_the_roofs_are_measured_and_kept(
    gpuperf_at: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small roofs take the same way as large ones, in a tenth of the time. The copy is much longer
    # than a reading of the clock, however busy this machine is.
    monkeypatch.setattr(ceilings_plan, "CPU_COPY", (2**20, 2**21))
    monkeypatch.setattr(ceilings_plan, "CPU_SIZES", (128, 256))
    ended = gpuperf_at.within(
        "roofline", "copy", "--n", "1M", "--device", "cpu", "--budget", "0.02", "--out", "roofs"
    )
    assert ended.code == 0, ended.err
    assert "measuring this device's own roofs first" in ended.err
    ceilings = read_run(gpuperf_at.run_file("roofs")).header.ceilings
    assert ceilings is not None
    assert ceilings.bandwidth is not None
    assert {ceiling.dtype for ceiling in ceilings.compute} == {"fp32"}
    kept = gpuperf_at("calibrate", "--show", "--device", "cpu", "--format", "json")
    if "the roofs are stored for an hour only" in ended.err:  # something else ran on this machine
        assert (kept.code, kept.out) == (3, "")
        return
    assert kept.code == 0, kept.err
    assert str(ceilings.bandwidth.value) in kept.out


def test_list_shows_our_workloads_and_a_users_file(gpuperf_at: CommandLine) -> None:
    ours = gpuperf_at("list")
    assert (ours.code, ours.err) == (0, "")
    assert "matmul" in ours.out
    assert "copy" in ours.out
    (theirs,) = json.loads(gpuperf_at("list", "./mine.py", "--json").out)
    assert theirs["name"] == "saxpy"
    assert [i["name"] for i in theirs["implementations"]] == ["eager", "fused"]


def test_the_version_is_the_packages(gpuperf_at: CommandLine) -> None:
    assert gpuperf_at("--version") == Ended(0, f"gpuperf {gpuperf.__version__}\n", "")


def test_a_bare_command_prints_the_help_line_by_line(gpuperf_at: CommandLine) -> None:
    ended = gpuperf_at()
    assert ended.code == 2
    assert ended.out == ""
    assert any(line.strip().startswith("roofline ") for line in ended.err.splitlines())


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_has_help(gpuperf_at: CommandLine, verb: str) -> None:
    ended = gpuperf_at.within(verb, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert f"gpuperf {verb}" in ended.out


@pytest.mark.parametrize("verb", sorted(v.name for v in verbs().values() if not v.group))
def test_the_list_says_of_a_verb_what_its_own_help_begins_with(verb: str) -> None:
    told = inspect.getdoc(load(verbs()[verb].command))
    assert told is not None
    assert verbs()[verb].help == " ".join(told.split("\n\n")[0].split())


def test_the_list_imports_no_verb() -> None:
    code = (
        "import sys\nsys.argv = ['gpuperf', '--help']\nfrom gpuperf.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted(n for n in sys.modules if n.startswith('gpuperf.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = [name.split(".")[1:] for name in literal_eval(done.stderr)]
    inside = {tuple(name) for name in imported if len(name) > 1 and name[0] != "verb"}
    assert inside == {("model", "text")}
    assert all(verb in done.stdout for verb in verbs())


HEAVY = ("torch", "triton", "matplotlib", "pandas", "scipy", "numpy")
# The module of another verb than those that are asked for here.
OTHERS = "gpuperf.roofline.command"
PROBE = f"""
import sys
from gpuperf.app import main
try:
    main()
finally:
    heavy = [name for name in {HEAVY} if name in sys.modules]
    alone = sys.argv[1] != "--help"
    loaded = heavy + [name for name in [{OTHERS!r}] if alone and name in sys.modules]
    print("loaded:", *loaded, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [("--help",), ("list",), ("show", "RUN"), ("devices",), ("theory", "claims", "--run", "RUN")],
)
def test_what_measures_nothing_imports_nothing_heavy_and_no_other_verb(
    gpuperf_at: CommandLine, run: Path, words: tuple[str, ...]
) -> None:
    given = [str(run) if word == "RUN" else word for word in words]
    ended = subprocess.run(
        [sys.executable, "-P", "-c", PROBE, *given],
        env=gpuperf_at.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "loaded:\n")
    assert ended.stdout


def test_a_sweep_prints_json_alone_on_stdout_and_imports_torch_in_the_worker_alone(
    gpuperf_at: CommandLine,
) -> None:
    words = ("roofline", "./mine.py", "--n", "512", "--impl", "fused", "--format", "json")
    ended = subprocess.run(
        [sys.executable, "-P", "-c", PROBE, *words, *QUICK, "--out", "json"],
        cwd=gpuperf_at.folder,
        env=gpuperf_at.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    (row,) = json.loads(ended.stdout)["rows"]
    assert row["implementation"] == "fused"
    assert row["point"] == {"n": 512, "dtype": "fp32"}
    assert row["time_s"] > 0
    loaded = ended.stderr.rpartition("loaded:")[2].split()
    assert "matplotlib" in loaded, "the probe sees what is loaded"
    assert "torch" not in loaded


def closed_pipe(command: CommandLine, *words: str) -> tuple[int, str]:
    """Exit code and stderr of a command whose reader went away at once."""
    process = command.start(*words)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        err = process.stderr.read()
    return process.wait(), err


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("list",),
        ("devices",),
        ("devices", "--format", "json"),
        ("show", "RUN"),
        ("show", "RUN", "--format", "csv"),
    ],
    ids=" ".join,
)
def test_a_closed_pipe_is_quiet_and_no_regression(
    gpuperf_at: CommandLine, run: Path, words: tuple[str, ...]
) -> None:
    given = [str(run) if word == "RUN" else word for word in words]
    assert closed_pipe(gpuperf_at, *given) == (0, "")


def test_a_sweep_whose_reader_went_away_is_measured_and_kept(gpuperf_at: CommandLine) -> None:
    code, err = closed_pipe(
        gpuperf_at, "roofline", "./mine.py", "--n", "64", "--impl", "fused", *QUICK, "--out", "pipe"
    )
    assert code == 0
    assert "Traceback" not in err
    assert [r.status for r in read_run(gpuperf_at.run_file("pipe")).records] == ["ok"]


def test_doctor_says_what_is_here(gpuperf_at: CommandLine) -> None:
    findings: list[Mapping[str, str]] = json.loads(
        gpuperf_at("doctor", "--device", "cpu", "--json").out
    )
    assert findings[0]["name"] == "device"
    assert all(finding["verdict"] in ("ok", "note", "bad") for finding in findings)
    assert all(f["hint"] for f in findings if f["verdict"] == "bad")


def test_a_workload_is_a_line_of_the_list_and_a_page_of_its_own(gpuperf_at: CommandLine) -> None:
    lines = gpuperf_at("list").out.splitlines()
    (attention,) = (line for line in lines if line.startswith("attention"))
    assert "seq* batch heads +12" in attention
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 45  # those of a terminal
    page = gpuperf_at("list", "matmul").out
    assert page.startswith("matmul: matrix product C = A·B\ncost of one call: ")
    assert all(name in page for name in ("torch", "triton", "default", "set by --sizes"))
