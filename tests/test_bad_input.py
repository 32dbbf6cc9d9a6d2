"""What does bad input get? A sentence, a hint, the right exit code; nothing measured is lost."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forks
import pytest
from command_line import QUICK, SAXPY, CommandLine, Ended, assert_refused

from gpuperf.model.record import SCHEMA
from gpuperf.run.store import read_run

# Each implementation but the last fails in its own way.
TROUBLE = """
import os, sys, time
from pathlib import Path

from gpuperf import Axis, Bytes, Cost, Implementation, Workload

HERE = Path(__file__).parent


def raises(x):
    raise ArithmeticError("no such sum")


def wrong(x):
    return x * 2.001


def exits(x):
    os._exit(1)


def loops(x):
    while True:
        pass


def naps(x):
    (HERE / "napping").write_text(str(os.getpid()))
    time.sleep(1.4)
    return x * 2


def good(x):
    return x * 2


def build(function):
    return lambda inputs, point, options: lambda: function(inputs["x"])


def workload(name, *functions):
    return Workload(
        name, "y = 2x", "n FLOP",
        (Axis("n", 64, main=True), Axis("dtype", "auto", choices=("fp32",))),
        lambda point, make: {"x": make((point.n,), point.dtype)},
        lambda inputs, point: inputs["x"].double() * 2,
        lambda point: Cost(bytes=(Bytes(4 * point.n, 4 * point.n),)),
        tuple(Implementation(f.__name__, build(f)) for f in functions),
    )


TROUBLE = workload("trouble", raises, wrong, exits, loops, good)
NAPPER = workload("napper", naps, good)
"""

# Slow enough to be stopped half-way; it notes what is built.
SLOW = """
import time
from pathlib import Path

from gpuperf import Axis, Bytes, Cost, Implementation, Workload


def build(inputs, point, options):
    with Path(__file__).with_name("built").open("a") as file:
        file.write(f"{point.n}\\n")

    def call():
        time.sleep(0.04)
        return inputs["x"] * 2

    return call


SLOW = Workload(
    "slow", "y = 2x", "n FLOP",
    (Axis("n", 64, main=True), Axis("dtype", "auto", choices=("fp32",))),
    lambda point, make: {"x": make((point.n,), point.dtype)},
    lambda inputs, point: inputs["x"].double() * 2,
    lambda point: Cost(bytes=(Bytes(4 * point.n, 4 * point.n),)),
    (Implementation("torch", build),),
)
"""
SLOW_SIZES = tuple(range(1, 7))


@pytest.fixture(scope="module")
def gpuperf_at(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    folder = tmp_path_factory.mktemp("bad")
    return CommandLine.at(folder, mine=SAXPY, trouble=TROUBLE, slow=SLOW)


MATMUL = ("roofline", "--op", "matmul")


SLIPS = [
    (("roofline",), "no workload was named"),
    (("roofline", "--op", "matmull"), "no workload 'matmull'; did you mean 'matmul'"),
    (("roofline", "matmull"), "no workload 'matmull'; did you mean 'matmul'"),
    ((*MATMUL, "--impl", "torhc"), "no implementation of matmul 'torhc'; did you mean 'torch'"),
    ((*MATMUL, "--dtype", "bf61"), "no dtype 'bf61'; did you mean 'bf16'"),
    ((*MATMUL, "--dtype", ""), "no dtype ''"),
    ((*MATMUL, "--mm", "64"), "no option '--mm'; did you mean '--m'"),
    ((*MATMUL, "--formt", "json"), "no option '--formt'; did you mean '--format'"),
    ((*MATMUL, "--html", "a.html"), "no option '--html'"),
    ((*MATMUL, "--format", "jsn"), "'jsn'"),
    ((*MATMUL, "--m"), "--m needs a value"),
    ((*MATMUL, "--m", "64", "--m", "128"), "--m is given twice"),
    ((*MATMUL, "--m", "abc"), "--m: 'abc' is not a whole number"),
    ((*MATMUL, "--k", "0"), "--k: 0 in '0' is below 1"),
    ((*MATMUL, "64"), "unexpected argument '64'"),
    ((*MATMUL, "--sizes", ""), "--sizes: it is empty"),
    ((*MATMUL, "--sizes", "-5"), "-5 in '-5' is below 1"),
    ((*MATMUL, "--sizes", "0"), "0 in '0' is below 1"),
    ((*MATMUL, "--sizes", "8192:128"), "runs backwards; write 128:8192"),
    ((*MATMUL, "--sizes", "2^60"), r"2\^60 is beyond 2\^40"),
    ((*MATMUL, "--sizes", "abc"), "'abc' is not a whole number"),
    ((*MATMUL, "--sizes", "1:1M:+1"), "has more than 10000 points"),
    ((*MATMUL, "--m", "1:2k:+1", "--n", "1:2k:+1"), "cases are more than 10000"),
    ((*MATMUL, "--m", "1", "--n", "1", "--k", "1", "--sizes", "8"), "--sizes 8 sets nothing"),
    ((*MATMUL, "--peaks", "absent.toml"), "no peaks file 'absent.toml'"),
    ((*MATMUL, "--out", "peaks.toml"), "nothing can be written to peaks.toml"),
    ((*MATMUL, "--out", "/dev/null/runs"), "nothing can be written to /dev/null/runs"),
    (("show", "absent.jsonl"), r"absent\.jsonl cannot be read: No such file"),
    (("show", "."), r"\. is not a file"),
]


# Files of users that do not load, each with what is said of it; None is a file that is not there.
SICK = {
    "typo": (
        "x = 1\ndef broken(:\n",
        2,
        r"typo\.py does not load: invalid syntax \(typo\.py line 2\)",
    ),
    "leaver": ("import os\nos._exit(1)\n", 2, r"died by exit code 1 while loading \./leaver\.py"),
    "absent": (None, 2, r"no file 'absent\.py'"),
}

RUNS = {
    "cuda0": (*MATMUL, "--device", "cuda0"),
    "cuda:0": (*MATMUL, "--device", "cuda:0"),
    "oom": ("roofline", "./mine.py", "--sizes", "512,2^40,256", "--impl", "fused", *QUICK),
    "dtypes": (*MATMUL, "--sizes", "64", "--dtype", "fp8,fp32,tf32", *QUICK),
    "fp8": (*MATMUL, "--sizes", "64", "--dtype", "fp8", "--device", "cpu"),
    "trouble": ("roofline", "--op", "./trouble.py:trouble", "--deadline", "2", *QUICK),
    **{name: ("roofline", f"./{name}.py", *QUICK) for name in SICK},
}


@pytest.fixture(scope="module")
def ends(gpuperf_at: CommandLine) -> dict[tuple[str, ...] | str, Ended]:
    """How each of the runs ended, side by side as they take long together, and each of the slips,
    in this process."""
    for name, (text, _, _) in SICK.items():
        if text is not None:
            (gpuperf_at.folder / f"{name}.py").write_text(text)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        ended = pool.map(lambda name: gpuperf_at(*RUNS[name], "--out", name), RUNS)
        runs = dict(zip(RUNS, ended, strict=True))
    return {**runs, **{words: gpuperf_at.within(*words) for words, _ in SLIPS}}


Ends = Mapping[tuple[str, ...] | str, Ended]


@pytest.mark.parametrize(
    ("words", "sentence"), [pytest.param(*slip, id=" ".join(slip[0])) for slip in SLIPS]
)
def test_a_slip_on_the_command_line_is_one_sentence_and_a_hint(
    ends: Ends, words: tuple[str, ...], sentence: str
) -> None:
    assert len(ends[words].err.splitlines()) == 2
    assert_refused(ends[words], 2, sentence)


def test_an_unknown_device_is_told_the_nearest(ends: Ends) -> None:
    assert_refused(ends["cuda0"], 2, "no device 'cuda0'; did you mean 'cuda:0'")


def test_a_gpu_that_is_not_here_cannot_be_measured(ends: Ends) -> None:
    assert_refused(ends["cuda:0"], 3, "no device 'cuda:0': torch can use no GPU", "--device cpu")


@pytest.mark.parametrize("name", SICK)
def test_a_users_file_that_does_not_load_measures_nothing(
    ends: Ends, gpuperf_at: CommandLine, name: str
) -> None:
    _, code, sentence = SICK[name]
    assert_refused(ends[name], code, sentence)
    assert not (gpuperf_at.folder / name).exists()


def test_a_size_beyond_memory_is_a_finding_and_the_others_are_measured(
    ends: Ends, gpuperf_at: CommandLine
) -> None:
    ended = ends["oom"]
    assert ended.code == 0, ended.err
    by_size = {r.case.point["n"]: r for r in read_run(gpuperf_at.run_file("oom")).records}
    assert {n: r.status for n, r in by_size.items()} == {512: "ok", 2**40: "oom", 256: "ok"}
    (row,) = [line for line in ended.out.splitlines() if line.strip().startswith(str(2**40))]
    assert "oom: needs 21,990.2 GB" in row


def test_a_dtype_that_the_device_lacks_is_skipped_with_the_reason(
    ends: Ends, gpuperf_at: CommandLine
) -> None:
    ended = ends["dtypes"]
    assert ended.code == 0, ended.err
    kept = read_run(gpuperf_at.run_file("dtypes")).records
    records = {r.case.point["dtype"]: r for r in kept}
    assert {d: r.status for d, r in records.items()} == {
        "fp8": "skipped",
        "fp32": "ok",
        "tf32": "skipped",
    }
    assert "does not compute in tf32" in records["tf32"].reason
    assert "does not compute in fp8" in ended.out


def test_nothing_but_such_a_dtype_is_nothing_measured(ends: Ends) -> None:
    ended = ends["fp8"]
    assert ended.code == 3
    assert "does not compute in fp8" in ended.out
    assert "roofs first" not in ended.err, "no minute is spent on roofs of what cannot run"
    assert ended.err.splitlines()[-2:] == [
        "gpuperf: nothing was measured",
        "  hint: the table says why",
    ]


def test_cases_that_fail_cost_the_others_nothing_and_the_exit_code_tells(
    ends: Ends, gpuperf_at: CommandLine
) -> None:
    ended = ends["trouble"]
    assert ended.code == 3
    assert "Traceback" not in ended.err
    records = {r.case.implementation: r for r in read_run(gpuperf_at.run_file("trouble")).records}
    assert {name: r.status for name, r in records.items()} == {
        "raises": "error",
        "wrong": "wrong",
        "exits": "crashed",
        "loops": "timeout",
        "good": "ok",
    }
    assert all(r.reason for name, r in records.items() if name != "good")
    assert all(r.times == {} for name, r in records.items() if name != "good")
    for word in ("raises", "ArithmeticError: no such sum", "exit code 1", "reported nothing"):
        assert word in ended.out
    assert "gpuperf: 4 of 5 cases failed: trouble/raises[n=64,dtype=fp32] (error)" in ended.err
    shown = gpuperf_at.within("show", str(gpuperf_at.run_file("trouble")))
    assert (shown.code, shown.out) == (0, ended.out)


def wait_for(path: Path, process: subprocess.Popen[str]) -> str:
    """What *path* holds, as soon as it holds something."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written")


def test_a_worker_killed_in_mid_sweep_costs_one_case(gpuperf_at: CommandLine) -> None:
    process = gpuperf_at.start("roofline", "--op", "./trouble.py:napper", *QUICK, "--out", "napper")
    os.kill(int(wait_for(gpuperf_at.folder / "napping", process)), signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    records = read_run(gpuperf_at.run_file("napper")).records
    assert [(r.case.implementation, r.status) for r in records] == [
        ("naps", "crashed"),
        ("good", "ok"),
    ]
    assert "SIGKILL" in records[0].reason
    assert "out-of-memory" in records[0].hint
    assert "good" in out
    assert "Traceback" not in err


@dataclass(frozen=True)
class Sweep:
    """The slow workload, swept into a folder of its own, with a note of what was built."""

    command: CommandLine
    out: str
    seed: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        sizes = ",".join(map(str, SLOW_SIZES))
        seed = ("--seed", str(self.seed))
        return ("roofline", "--op", "./slow.py", "--sizes", sizes, *QUICK, *seed, "--out", self.out)

    @property
    def path(self) -> Path:
        return self.command.run_file(self.out)

    def start(self, **more: Any) -> subprocess.Popen[str]:
        self.note.unlink(missing_ok=True)
        return self.command.start(*self.words, **more)

    @property
    def note(self) -> Path:
        return self.command.folder / "built"

    def built(self) -> list[int]:
        return [int(line) for line in self.note.read_text().split()]

    def wait_for_records(self, count: int, process: subprocess.Popen[str]) -> None:
        """Until the run file holds *count* whole records."""
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            folder = self.command.folder / self.out
            files = list(folder.glob("*.jsonl"))
            if files and sum(map(is_record, files[0].read_bytes().splitlines())) >= count:
                return
            time.sleep(0.01)
        raise AssertionError(f"{self.out}: there were not {count} records in time")

    def resume(self) -> Ended:
        self.note.unlink(missing_ok=True)
        return self.command("roofline", "--resume", str(self.path), "--device", "cpu")

    def records_per_size(self) -> dict[int, int]:
        """How many whole records the file holds of each size, however often it was measured."""
        lines = [line for line in self.path.read_bytes().splitlines() if is_record(line)]
        return dict(Counter(json.loads(line)["case"]["point"]["n"] for line in lines))


def is_record(line: bytes) -> bool:
    try:
        return bool(line) and json.loads(line)["type"] == "record"
    except ValueError:
        return False


def assert_complete(sweep: Sweep, resumed: Ended, measured_before: set[int]) -> None:
    """The plan is done, every size has one record, and only what was missing was built again."""
    assert resumed.code == 0, resumed.err
    assert "Traceback" not in resumed.err
    assert sweep.records_per_size() == dict.fromkeys(SLOW_SIZES, 1)
    assert {r.status for r in read_run(sweep.path).records} == {"ok"}
    assert sweep.built() == [n for n in SLOW_SIZES if n not in measured_before]
    for size in SLOW_SIZES:
        assert re.search(rf"^ *{size}  fp32", resumed.out, re.MULTILINE)


@pytest.fixture(scope="module")
def killed(gpuperf_at: CommandLine) -> Sweep:
    """A run whose supervisor was killed after two records, and which was then resumed."""
    sweep = Sweep(gpuperf_at, "killed", seed=7)
    process = sweep.start()
    sweep.wait_for_records(2, process)
    process.kill()
    process.communicate()
    before = sweep.path.read_bytes()
    sizes = set(sweep.records_per_size())
    assert 2 <= len(sizes) < len(SLOW_SIZES)
    assert_complete(sweep, sweep.resume(), sizes)
    assert sweep.path.read_bytes().startswith(before), "what was written stands"
    return sweep


def test_a_killed_supervisor_loses_nothing_and_resume_completes_the_plan(killed: Sweep) -> None:
    run = read_run(killed.path)
    assert run.problems == ()
    assert [r.case for r in run.records] == list(run.header.plan)


def test_what_is_resumed_keeps_its_contract_and_its_seed(killed: Sweep) -> None:
    run = read_run(killed.path)
    assert {r.contract for r in run.records} == {run.header.contract}
    assert {r.seed for r in run.records} == {7}


def test_a_finished_run_is_resumed_by_printing_it(killed: Sweep) -> None:
    before = read_run(killed.path)
    again = killed.resume()
    assert again.code == 0, again.err
    assert read_run(killed.path) == before
    assert not killed.note.exists(), "nothing was built"
    assert again.out == killed.command.within("show", str(killed.path)).out


@pytest.mark.parametrize(
    "words",
    [("--op", "matmul"), ("--sizes", "64"), ("--budget", "9"), ("--out", "x"), ("--m", "4")],
    ids=" ".join,
)
def test_resume_takes_no_other_plan(killed: Sweep, words: tuple[str, ...]) -> None:
    ended = killed.command.within("roofline", "--resume", str(killed.path), *words)
    assert_refused(
        ended, 2, f"--resume takes its plan from the run, so {words[0]} cannot be given with it"
    )


def test_a_run_of_another_device_is_not_resumed(killed: Sweep, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    header = json.loads(killed.path.read_bytes().split(b"\n")[1])
    header["fingerprint"]["hard"]["product"] = "Another GPU"
    path.write_text(json.dumps(header) + "\n")
    ended = killed.command("roofline", "--resume", str(path), "--device", "cpu")
    assert_refused(ended, 3, "cannot be resumed here: product was 'Another GPU'", "new run")


@pytest.fixture(scope="module")
def interrupted(gpuperf_at: CommandLine) -> tuple[Sweep, Ended]:
    """A run that was stopped by Ctrl-C after two records: a terminal tells the whole group."""
    sweep = Sweep(gpuperf_at, "ctrl-c")
    process = sweep.start(start_new_session=True, preexec_fn=forks.hear)
    sweep.wait_for_records(2, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    return sweep, Ended(process.returncode, out, err)


def test_ctrl_c_prints_and_keeps_what_was_measured(interrupted: tuple[Sweep, Ended]) -> None:
    sweep, ended = interrupted
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err
    resume = f"gpuperf roofline --resume ctrl-c/{sweep.path.name} --device cpu\n"
    rest = f"interrupted; to measure the missing cases: {resume}"
    assert rest in ended.err
    sizes = set(sweep.records_per_size())
    assert 2 <= len(sizes) < len(SLOW_SIZES)
    assert read_run(sweep.path).problems == ()
    for size in sizes:
        assert re.search(rf"^ *{size}  fp32", ended.out, re.MULTILINE)


def test_an_interrupted_run_even_if_cut_in_mid_line_is_resumed_from_its_last_whole_record(
    interrupted: tuple[Sweep, Ended], gpuperf_at: CommandLine
) -> None:
    cut = Sweep(gpuperf_at, "cut")
    (gpuperf_at.folder / "cut").mkdir()
    shutil.copy(interrupted[0].path, gpuperf_at.folder / "cut")
    sizes = sorted(cut.records_per_size())
    whole = cut.path.read_bytes()
    cut.path.write_bytes(whole[: whole.rstrip().rfind(b"\n") + 200])
    shown = gpuperf_at.within("show", str(cut.path))
    assert shown.code == 0
    assert re.search(r"line \d+ is not a whole record .*; its other lines were read", shown.err)
    assert_complete(cut, cut.resume(), set(sizes[:-1]))


def test_a_disk_that_fills_loses_nothing_measured(
    killed: Sweep, gpuperf_at: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # the limit would cut bytecode short too
    _, header, first = killed.path.read_bytes().split(b"\n")[:3]
    most = len(header) + len(first) + len(first) // 2
    full = Sweep(gpuperf_at, "filled")
    process = full.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4, err
    assert "Traceback" not in err
    said, hinted = err.splitlines()[-2:]
    assert re.match(r"gpuperf: filled/.*\.jsonl cannot be written on: ", said)
    assert "--resume filled/" in hinted
    assert full.records_per_size() == {1: 1}
    for size in full.built():
        assert re.search(rf"^ *{size}  fp32", out, re.MULTILINE), "the unwritten is printed too"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not a run of gpuperf"),
        (b"size,time\n128,1e-6\n", "is not a run of gpuperf"),
        (b'{"type":"header"}\n', "is not a run of gpuperf"),
        (b"\x00\xff\xfe" * 1000, "is not a run of gpuperf"),
        (b"[" * 100_000, "is not a run of gpuperf"),
        (
            b'{"type":"header","schema":%d,"novel":1}\n' % (SCHEMA + 1),
            f"has schema {SCHEMA + 1}; this gpuperf reads up to {SCHEMA}$",
        ),
    ],
    ids=["empty", "csv", "half a header", "binary", "deep", "newer"],
)
def test_a_file_that_is_no_run_is_refused(
    gpuperf_at: CommandLine, tmp_path: Path, content: bytes, sentence: str
) -> None:
    path = tmp_path / "strange.jsonl"
    path.write_bytes(content)
    assert_refused(gpuperf_at.within("show", str(path)), 2, sentence)


def test_two_gigabytes_of_one_line_are_refused_in_little_memory(
    gpuperf_at: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "endless.jsonl"
    path.touch()
    os.truncate(path, 2**31)  # a hole, which takes no room
    most = 2**30
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most))}
    ended = gpuperf_at("show", str(path), **(limit if sys.platform == "linux" else {}))
    assert_refused(ended, 2, r"line 1 of .*endless\.jsonl is over 64 MiB")


def test_a_chart_that_cannot_be_written_is_said_so(killed: Sweep) -> None:
    ended = killed.command.within("show", str(killed.path), "--chart", "absent/chart.svg")
    assert_refused(ended, 2, r"cannot write 'absent/chart\.svg'")


def test_debug_shows_where(gpuperf_at: CommandLine) -> None:
    ended = gpuperf_at("show", "absent.jsonl", "--debug")
    assert ended.code == 2
    assert "Traceback" in ended.err
    assert "absent.jsonl cannot be read" in ended.err.splitlines()[-2]
