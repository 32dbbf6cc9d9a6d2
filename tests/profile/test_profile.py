"""`gpuperf profile` and `import` as a user runs them, on programs whose FLOPs are known by hand."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import forks
import pytest
import typer

from gpuperf.app import SWITCHES, make_app
from gpuperf.model.record import Record, Run
from gpuperf.run.store import read_run
from gpuperf.verb.words import HELP

MLP = """
import torch, gpuperf
m = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 128))
o = torch.optim.Adam(m.parameters())
x, y = torch.randn(64, 256), torch.randint(0, 128, (64,))
for _ in range(12):
    torch.nn.functional.cross_entropy(m(x), y).backward()
    o.step(); o.zero_grad()
    gpuperf.step()
"""
CONVOLUTIONS = """
import torch, gpuperf
from torch import nn
class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.one, self.two = (nn.Conv2d(c, c, 3, padding=1, bias=False) for _ in range(2))
        self.n1, self.n2 = nn.BatchNorm2d(c), nn.BatchNorm2d(c)
    def forward(self, x):
        y = self.n2(self.two(self.n1(self.one(x)).relu()))
        return (x + y).relu()
m = nn.Sequential(nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False), Block(16),
                  nn.Conv2d(16, 32, 1, stride=2, bias=False), Block(32),
                  nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
x, y = torch.randn(4, 3, 64, 64), torch.randint(0, 10, (4,))
for _ in range(12):
    with gpuperf.region("train"):
        nn.functional.cross_entropy(m(x), y).backward()
        o.step(); o.zero_grad()
"""
TRANSFORMER = """
import torch, gpuperf
from torch import nn
B, N, D, H, KV = 2, 64, 128, 8, 2
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(D, D, bias=False), nn.Linear(D, 2 * D * KV // H, bias=False)
        self.o = nn.Linear(D, D, bias=False)
        self.up, self.down = nn.Linear(D, 4 * D, bias=False), nn.Linear(4 * D, D, bias=False)
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
    def forward(self, x):
        y = self.n1(x)
        q = self.q(y).view(B, N, H, -1).transpose(1, 2)
        k, v = self.kv(y).view(B, N, 2, KV, -1).permute(2, 0, 3, 1, 4)
        k, v = (t.repeat_interleave(H // KV, 1) for t in (k, v))
        s = (q @ k.transpose(-2, -1) / 4).softmax(-1) @ v
        x = x + self.o(s.transpose(1, 2).reshape(B, N, D))
        return x + self.down(nn.functional.silu(self.up(self.n2(x))))
m = nn.Sequential(Layer(), Layer())
x = torch.randn(B, N, D)
with torch.no_grad():
    for _ in range(12):
        m(x)
        gpuperf.step()
"""


def by_hand(name: str) -> int:
    """FLOPs of matmuls and convolutions: an FMA is 2, a backward twice the forward, less what no
    input asks for."""
    if name == "mlp":
        first, second = 2 * 64 * 256 * 512, 2 * 64 * 512 * 128
        return 3 * (first + second) - first  # the first layer's input needs no gradient
    if name == "convolutions":
        stem = 2 * 4 * 32 * 32 * 16 * 3 * 49
        block = 2 * 2 * 4 * 32 * 32 * 16 * 16 * 9
        down = 2 * 4 * 16 * 16 * 32 * 16
        small = 2 * 2 * 4 * 16 * 16 * 32 * 32 * 9
        return 3 * (stem + block + down + small + 2 * 4 * 32 * 10) - stem
    projections = 2 * 2 * 64 * 128 * (128 + 64 + 128 + 4 * 128 + 4 * 128)
    attention = 4 * 2 * 8 * 64 * 64 * 16
    return 2 * (projections + attention)


def gpuperf(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = forks.run(
        [sys.executable, "-c", "from gpuperf.app import main; main()", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def profiled(folder: Path, text: str, *arguments: str) -> tuple[Run, str]:
    (folder / "train.py").write_text(text, encoding="utf-8")
    done = gpuperf(folder, "profile", "--steps", "3", "--warmup", "2", *arguments, "train.py")
    (file,) = (folder / "gpuperf-runs").glob("*.jsonl")
    return read_run(file), done.stdout


def region_of(run: Run) -> Record:
    (found,) = (record for record in run.records if record.kind == "region")
    return found


def products(record: Record) -> int:
    assert record.cost is not None
    return sum(flops.count for flops in record.cost.flops if flops.kind == "matmul")


@pytest.fixture(scope="module")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run, str]:
    """The folder, the run and what was printed of a profile of the MLP."""
    folder = tmp_path_factory.mktemp("mlp")
    return folder, *profiled(folder, MLP)


@pytest.mark.parametrize(
    ("name", "text", "region"),
    [
        ("mlp", MLP, "step"),
        ("convolutions", CONVOLUTIONS, "train"),
        ("transformer", TRANSFORMER, "step"),
    ],
)
def test_the_flops_of_a_model_are_those_counted_by_hand(
    tmp_path: Path, mlp: tuple[Path, Run, str], name: str, text: str, region: str
) -> None:
    folder, run, printed = mlp if name == "mlp" else (tmp_path, *profiled(tmp_path, text))
    whole = region_of(run)
    assert whole.region == region
    assert products(whole) == pytest.approx(by_hand(name), rel=0.02)
    assert whole.program is not None
    assert whole.program.flop_counter == pytest.approx(by_hand(name), rel=0.02)
    assert whole.program.steps == {"plain": 3, "trace": 3, "accounting": 3}
    assert f"{region} of train.py on " in printed
    unknown = [r.case.op for r in run.records if r.operator and not r.operator.known]
    assert unknown == []
    assert sorted(path.suffix for path in (folder / "gpuperf-runs").iterdir()) == [
        ".jsonl",
        ".png",
        ".svg",
    ]


def test_operators_of_a_step_sum_to_it(mlp: tuple[Path, Run, str]) -> None:
    _, run, _ = mlp
    whole = region_of(run)
    operators = [record for record in run.records if record.kind == "operator"]
    assert products(whole) == sum(products(record) for record in operators)
    assert len({record.case.id for record in operators}) == len(operators)
    lines = [line for r in operators if r.operator for line in r.operator.where]
    assert any(line.startswith("train.py:") for line in lines)


def test_what_was_profiled_is_shown_again_and_held_against_itself(
    mlp: tuple[Path, Run, str], tmp_path: Path
) -> None:
    folder, _, printed = mlp
    (file,) = (folder / "gpuperf-runs").glob("*.jsonl")
    assert gpuperf(tmp_path, "show", str(file)).stdout in printed
    told = gpuperf(tmp_path, "show", str(file), str(file)).stdout
    assert "no operator changed" in told
    gpuperf(tmp_path, "show", str(file), "--chart", "again.svg")
    assert (tmp_path / "again.svg").stat().st_size > 0


def test_a_program_that_fails_makes_gpuperf_exit_with_3_and_is_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MLP + "raise SystemExit(7)", encoding="utf-8")
    gpuperf(tmp_path, "profile", "--steps", "3", "--warmup", "2", "train.py", code=3)
    (file,) = (tmp_path / "gpuperf-runs").glob("*.jsonl")
    whole = region_of(read_run(file))
    assert whole.program is not None
    assert whole.program.exit_code == 7
    assert whole.status == "ok"


def test_fewer_steps_than_were_asked_for_are_explained(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MLP, encoding="utf-8")
    done = gpuperf(tmp_path, "profile", "--steps", "5000", "--warmup", "2", "train.py")
    assert " of 5000 steps, " in done.stderr
    assert "the plain pass ended early: its part of --budget was spent, or" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise ValueError('bad')", "ValueError: bad"),
        ("print(1)", "no operator of torch ran"),
        ("import sys; sys.exit('so')", "so"),
    ],
)
def test_what_cannot_be_profiled_says_why_in_a_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    done = gpuperf(tmp_path, "profile", "train.py", code=3)
    assert words in done.stderr
    assert "hint: " in done.stderr


def test_measured_times_need_a_theory(tmp_path: Path) -> None:
    done = gpuperf(tmp_path, "profile", "--measured", "run.jsonl", "train.py", code=2)
    assert "--measured needs --theory" in done.stderr


def test_a_missing_script_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = gpuperf(tmp_path, "profile", "nowhere.py", code=2)
    assert "there is no script 'nowhere.py'" in done.stderr


BEHIND = ["--steps", "9", "-m", "x", "--debug", "--help", "--version", "-h", "--", "y"]
ASSERTION = f"import sys\nassert sys.argv[1:] == {BEHIND}, sys.argv\n"


@pytest.fixture(scope="module")
def as_json(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A profile without counters, printed as JSON, of a program that has options of its own."""
    folder = tmp_path_factory.mktemp("json")
    (folder / "train.py").write_text("print('hello')\n" + ASSERTION + MLP, encoding="utf-8")
    options = ["--steps", "3", "--warmup", "2", "--format", "json", "--items", "64"]
    return gpuperf(folder, "profile", *options, "--counters", "off", "train.py", *BEHIND)


def test_options_behind_the_script_are_the_scripts(
    as_json: subprocess.CompletedProcess[str],
) -> None:
    assert as_json.returncode == 0  # the program asserts its arguments


def test_json_is_all_that_stdout_holds(as_json: subprocess.CompletedProcess[str]) -> None:
    value: dict[str, Any] = json.loads(as_json.stdout)
    assert value["regions"][0]["program"]["items"] == 64.0
    assert value["regions"][0]["operators"][0]["time_s"] > 0


def test_counters_that_are_off_are_not_missed(as_json: subprocess.CompletedProcess[str]) -> None:
    assert "no pass counters" not in as_json.stderr


def test_each_option_that_takes_no_value_is_known_to_be_one() -> None:
    command: Any = typer.main.get_command(make_app(["profile"]))
    switches = {
        name
        for p in command.commands["profile"].params
        for name in getattr(p, "opts", ())
        if getattr(p, "is_flag", False)
    }
    assert switches | {"--debug", *HELP} == SWITCHES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_keeps_what_was_found(tmp_path: Path, number: signal.Signals) -> None:
    text = (
        MLP
        + """
import sys, time
try:
    print("up", flush=True)
    time.sleep(60)
except KeyboardInterrupt: sys.exit(7)
"""
    )
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    code = "from gpuperf.app import main; main()"
    with forks.Popen(
        [sys.executable, "-c", code, "profile", "--steps", "1", "train.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=forks.hear,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            process.send_signal(number)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 128 + number
    (file,) = (tmp_path / "gpuperf-runs").glob("*.jsonl")
    whole = region_of(read_run(file))
    assert whole.program is not None
    assert whole.program.exit_code == 7
    assert whole.program.steps["plain"] == 1


def test_each_pass_may_have_a_run_of_its_own(tmp_path: Path) -> None:
    """And each of these runs has the options behind the script."""
    text = "print('once more')\n" + ASSERTION + MLP
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    before = ["--steps", "3", "--warmup", "2", "--repeat", "--debug"]
    printed = gpuperf(tmp_path, "profile", *before, "train.py", *BEHIND).stdout
    assert printed.count("once more") == 4
    (file,) = (tmp_path / "gpuperf-runs").glob("*.jsonl")
    whole = region_of(read_run(file))
    assert products(whole) == by_hand("mlp")
    assert whole.program is not None
    assert whole.program.steps == {"plain": 3, "trace": 3, "accounting": 3}


def test_a_trace_without_marks_has_the_flops_of_a_round(tmp_path: Path) -> None:
    loop = MLP.replace("    gpuperf.step()\n", "").replace("import torch, gpuperf", "import torch")
    text = (
        "from torch.profiler import profile, ProfilerActivity\n"
        "with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as own:\n"
        + "".join(f"    {line}\n" for line in loop.strip().splitlines())
        + "own.export_chrome_trace('trace.json.gz')\n"
    )
    (tmp_path / "make.py").write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "make.py"], cwd=tmp_path, check=True, capture_output=True)
    printed = gpuperf(tmp_path, "import", "trace.json.gz").stdout
    assert printed.startswith("loop of trace.json.gz on ")
    (file,) = (tmp_path / "gpuperf-runs").glob("*.jsonl")
    assert products(region_of(read_run(file))) == pytest.approx(by_hand("mlp"), rel=0.02)


def test_regions_inside_a_step_tell_their_share(tmp_path: Path) -> None:
    text = """
import torch, gpuperf
x = torch.randn(256, 256)
for _ in range(14):
    with gpuperf.region("large"):
        for _ in range(30):
            x @ x
    with gpuperf.region("small"):
        x.sum()
    gpuperf.step()
"""
    run, printed = profiled(tmp_path, text)
    whole = region_of(run)
    assert whole.region == "step"
    assert whole.program is not None
    assert set(whole.program.parts) == {"large", "small"}
    assert whole.program.parts["large"] > 5 * whole.program.parts["small"] > 0
    assert "inside, of the traced time: large " in printed


def test_what_the_counters_are_asked_for_is_what_is_done(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch, gpuperf\n"
        "for _ in range(30):\n"
        "    torch.ones(9).add_(1)\n"
        "    gpuperf.step()\n"
    )
    kernels = gpuperf(tmp_path, "profile", "--counters", "kernels", "train.py", code=3)
    assert "step lacks counters, which were required" in kernels.stderr
    assert "add_" in kernels.stdout  # and all else is told
    require = gpuperf(tmp_path, "profile", "--counters", "require", "train.py", code=3)
    assert "only NVIDIA GPUs" in require.stderr
    items = gpuperf(tmp_path, "profile", "--items", "inf", "train.py", code=2)
    assert "--items takes a finite number" in items.stderr
    ncu = gpuperf(tmp_path, "profile", "--counters", "ncu", "train.py", code=2)
    assert "known: auto, kernels, off, require" in ncu.stderr
