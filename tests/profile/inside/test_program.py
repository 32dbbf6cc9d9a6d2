"""Does a program run as python would run it, and is what was found kept however it ends?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpuperf.model.program import PassResult
from gpuperf.model.protocol import Profile
from gpuperf.profile import program
from gpuperf.profile.inside.script import marks_steps
from gpuperf.profile.program import ProgramRun, run_program

LOOP = """
import torch, gpuperf
x = torch.ones(64, 64)
for i in range({rounds}):
    x = (x @ x).clamp(-1, 1)
    gpuperf.step()
    {more}
"""


def script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return path


def ran(
    folder: Path,
    text: str,
    *arguments: str,
    timeout_s: float | None = 60.0,
    steps: int = 3,
    stdout: int | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> ProgramRun:
    argv = (str(script(folder, text)), *arguments)
    request = Profile(argv, False, 1, steps, ("plain", "trace", "accounting"), str(folder))
    return run_program(request, timeout_s, lambda passed: None, stdout, waiting)


def names(found: ProgramRun) -> list[tuple[str, int]]:
    return [(passed.name, passed.steps) for passed in found.passed]


LIMIT_S = 5.0  # enough to import torch and run all passes of `LOOP`
FOR_EVER = "import time\nwhile True: time.sleep(0.01)"
ALL = [("plain", 3), ("trace", 3), ("accounting", 3)]


def test_a_program_has_its_arguments_and_is_main(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "import sys\nprint(__name__, sys.argv[1:], sys.path[0])\nimport beside"
    (tmp_path / "beside.py").write_text("print('beside')", encoding="utf-8")
    found = ran(tmp_path, text, "--epochs", "1")
    assert (found.exit_code, found.error) == (0, "")
    told = capfd.readouterr().out
    assert f"__main__ ['--epochs', '1'] {tmp_path}" in told
    assert "beside" in told


def test_the_passes_of_a_loop_come_back(tmp_path: Path) -> None:
    found = ran(tmp_path, LOOP.format(rounds=12, more=""))
    assert names(found) == ALL
    assert found.exit_code == 0
    assert found.steps == {"step": 11}
    assert found.opened is not None
    assert found.opened.device.kind == "cpu"


@pytest.mark.parametrize(
    ("end", "code", "error"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit", 0, ""),
        ("import os; os._exit(9)", 9, ""),
        ("raise SystemExit('so')", 1, "so"),
        ("raise ValueError('bad')", 1, "ValueError: bad"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, "SIGKILL"),
    ],
    ids=["code", "none", "os._exit", "words", "raises", "killed"],
)
def test_however_a_program_ends_its_passes_are_kept(
    tmp_path: Path, end: str, code: int, error: str
) -> None:
    found = ran(tmp_path, LOOP.format(rounds=12, more="") + end)
    assert names(found) == ALL
    assert found.exit_code == code
    assert error in found.error


def test_a_traceback_is_the_programs_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran(tmp_path, "def f():\n    raise ValueError('bad')\nf()")
    told = capfd.readouterr().err
    assert told.count("File ") == 2
    assert 'train.py", line 3' in told
    assert "runpy" not in told


def test_a_traceback_has_no_control_characters_and_no_frame_of_ours(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = """
import torch, gpuperf
class Model(torch.nn.Module):
    def forward(self, x):
        raise ValueError("bad \\x1b[31mred\\x07\\nand more")
with gpuperf.region("all"):
    Model()(torch.ones(2))
"""
    found = ran(tmp_path, text)
    told = capfd.readouterr().err
    assert 'train.py", line 5, in forward' in told
    assert "bad [31mred" in told
    assert "and more" in told
    assert all(c.isprintable() or c == "\n" for c in told)
    assert f"gpuperf{os.sep}measure" not in told
    assert found.exit_code == 1


def test_a_hook_that_fails_has_no_control_characters_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = """
import sys, torch
def hook(*_):
    raise RuntimeError("hook \\x1b[31mred")
sys.excepthook = hook
raise ValueError("bad \\x1b[31mred\\x07")
"""
    found = ran(tmp_path, text)
    told = capfd.readouterr().err
    assert "RuntimeError: hook [31mred" in told
    assert "Original exception was:" in told
    assert "ValueError: bad [31mred" in told
    assert all(c.isprintable() or c == "\n" for c in told)
    assert found.exit_code == 1


def test_a_program_that_runs_for_ever_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    found = ran(tmp_path, LOOP.format(rounds=12, more="") + FOR_EVER, timeout_s=LIMIT_S)
    assert time.monotonic() - began < LIMIT_S + 12
    assert names(found) == ALL
    assert found.error == "its time was over"
    assert found.exit_code == 130


def test_a_program_that_hears_no_interrupt_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "FAREWELL_S", 1.0)
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + FOR_EVER
    found = ran(tmp_path, LOOP.format(rounds=12, more="") + deaf, timeout_s=LIMIT_S)
    assert names(found) == ALL
    assert found.exit_code is None


def test_a_program_without_marks_is_traced_as_a_whole(tmp_path: Path) -> None:
    text = "import torch\nx = torch.ones(64, 64)\nfor _ in range(20): x = (x @ x).clamp(-1, 1)"
    found = ran(tmp_path, text)
    (whole,) = found.passed
    assert (whole.region, whole.name, whole.steps) == ("program", "trace", 1)
    assert Path(whole.trace).stat().st_size > 0
    assert found.opened is not None


def test_megabytes_of_output_pass_through(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        found = ran(tmp_path, "print('x' * 8_000_000)", stdout=out.fileno())
    assert found.exit_code == 0
    assert (tmp_path / "out").stat().st_size == 8_000_001


def test_an_optimizer_marks_a_loop_that_does_not(tmp_path: Path) -> None:
    text = """
import torch
m = torch.nn.Linear(8, 8)
o = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(12):
    m(torch.ones(2, 8)).sum().backward(); o.step(); o.zero_grad()
"""
    found = ran(tmp_path, text)
    assert names(found) == ALL
    assert {passed.region for passed in found.passed} == {"optimizer step"}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_disturb_nothing(tmp_path: Path, method: str) -> None:
    text = f"""
import torch, gpuperf
class Data(torch.utils.data.Dataset):
    def __len__(self): return 48
    def __getitem__(self, i):
        gpuperf.step()
        return torch.ones(4) * i
if __name__ == "__main__":
    more = dict(num_workers=2, multiprocessing_context="{method}")
    for batch in torch.utils.data.DataLoader(Data(), 4, **more):
        batch.mul_(2)
        gpuperf.step()
"""
    found = ran(tmp_path, text)
    assert (found.exit_code, found.error) == (0, "")
    assert names(found) == ALL
    assert found.steps == {"step": 11}


def test_a_child_that_was_forked_says_nothing(tmp_path: Path) -> None:
    fork = "import os\nif os.fork() == 0: raise SystemExit(3)\nos.wait()"
    found = ran(tmp_path, LOOP.format(rounds=12, more="") + fork)
    assert found.exit_code == 0
    assert names(found) == ALL


def test_ctrl_c_ends_the_program_and_keeps_what_was_found(tmp_path: Path) -> None:
    wait = "import time\nprint('up', flush=True)\ntime.sleep(60)"
    path = script(tmp_path, LOOP.format(rounds=12, more="") + wait)
    code = (
        "from gpuperf.profile.program import run_program\n"
        "from gpuperf.model.protocol import Profile\n"
        f"r = run_program(Profile(({str(path)!r},), False, 1, 3, ('plain',), {str(tmp_path)!r}),"
        " None, lambda p: None)\n"
        "print(r.interrupted, [p.name for p in r.passed], r.exit_code)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            os.kill(process.pid, signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert out.splitlines()[-1] == "True ['plain'] 130"


def test_ctrl_c_while_a_pass_is_recorded_loses_no_pass(tmp_path: Path) -> None:
    recorded: list[str] = []

    def record(found: ProgramRun) -> None:
        if not recorded:
            signal.raise_signal(signal.SIGINT)
        recorded.append(found.passed[-1].name)

    path = script(tmp_path, LOOP.format(rounds=12, more="") + FOR_EVER)
    request = Profile((str(path),), False, 1, 3, ("plain", "trace"), str(tmp_path))
    found = run_program(request, 60.0, record)
    assert found.interrupted
    assert recorded == [passed.name for passed in found.passed]
    assert recorded[0] == "plain"


def test_a_module_is_run_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "train.py").write_text("import sys; print(__name__, __package__, sys.argv[1:])")
    monkeypatch.chdir(tmp_path)
    request = Profile(("pkg.train", "a"), True, 1, 3, (), str(tmp_path))
    told: list[PassResult] = []
    found = run_program(request, 60.0, told.append)
    assert found.exit_code == 0
    assert "__main__ pkg ['a']" in capfd.readouterr().out


@pytest.mark.parametrize("argv", [("nowhere.py",), ("/",)])
def test_what_is_no_script_ends_with_an_error(tmp_path: Path, argv: Sequence[str]) -> None:
    request = Profile(tuple(argv), False, 1, 3, (), str(tmp_path))
    found = run_program(request, 60.0, lambda passed: None)
    assert found.exit_code == 1
    assert "Error" in found.error


def test_threads_and_handlers_at_exit_have_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "EXIT_S", 0.5)
    text = """
import atexit, os, threading, time
def save():
    time.sleep(1)
    open("checkpoint", "w").write("whole")
    os._exit(5)
os.chdir(os.path.dirname(__file__))
atexit.register(save)
threading.Thread(target=lambda: (time.sleep(2), open("thread", "w").write("whole"))).start()
"""
    waited: list[int] = []
    found = ran(tmp_path, text, waiting=lambda: waited.append(1))
    assert (tmp_path / "checkpoint").read_text() == (tmp_path / "thread").read_text() == "whole"
    assert (found.exit_code, found.error, waited) == (5, "", [1])


def test_a_thread_that_never_ends_is_ended_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_start: None
) -> None:
    monkeypatch.setattr(program, "FAREWELL_S", 1.0)
    text = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()"
    found = ran(tmp_path, text, timeout_s=6.0)
    assert (found.exit_code, found.error) == (None, "its time was over")


def test_torch_is_imported_when_the_program_does_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], real_start: None
) -> None:
    text = """
import importlib.util, os, sys
assert "torch" not in sys.modules
assert importlib.util.find_spec("torch") is not None
os.environ["OMP_NUM_THREADS"] = "1"
import gpuperf
gpuperf.step()
with gpuperf.region("before"):
    assert "torch" not in sys.modules
import torch
print("threads", torch.get_num_threads())
"""
    found = ran(tmp_path, text + LOOP.format(rounds=12, more=""))
    assert names(found) == ALL
    assert "threads 1" in capfd.readouterr().out


def test_a_program_without_torch_ends_as_one_without_work(tmp_path: Path) -> None:
    found = ran(tmp_path, "print(1)")
    assert (found.exit_code, found.error) == (0, "")
    assert found.opened is not None


def test_a_program_that_fails_before_it_has_torch_says_how(tmp_path: Path) -> None:
    found = ran(tmp_path, "raise ValueError('bad')")
    assert (found.exit_code, found.error, found.opened) == (1, "ValueError: bad", None)


MAIN = """
import atexit, pickle, sys, threading
class Own: pass
def look():
    main = sys.modules["__main__"]
    assert main.Own is Own and pickle.loads(pickle.dumps(Own())).__class__ is Own
    print("main", main.__spec__ and main.__spec__.name, main.__package__)
atexit.register(look)
def later(x: int): threading.main_thread().join(); look()
threading.Thread(target=later, args=(1,)).start()
print("argv", sys.argv[0], "path", sys.path[0], "file", __file__, later.__annotations__)
"""


def test_main_is_the_programs_own_until_the_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = script(tmp_path, MAIN)
    plain = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, check=True)
    request = Profile((path.name,), False, 1, 3, (), str(tmp_path))
    assert run_program(request, 60.0, lambda passed: None).exit_code == 0
    told = capfd.readouterr().out
    assert told == plain.stdout
    assert told.count("main None None") == 2
    assert f"argv train.py path {tmp_path} file {path} " in told


def test_a_module_is_main_as_python_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(MAIN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    plain = subprocess.run(
        [sys.executable, "-m", "pkg"], capture_output=True, text=True, check=True
    )
    run_program(Profile(("pkg",), True, 1, 3, (), str(tmp_path)), 60.0, lambda passed: None)
    assert capfd.readouterr().out == plain.stdout
    assert "pkg.__main__ pkg" in plain.stdout


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("# coding: latin-1\nprint('caf\xe9' == 'caf\\xe9')".encode("latin-1"), "True"),
        (b"\xef\xbb\xbfprint('mark')", "mark"),
    ],
    ids=["cookie", "BOM"],
)
def test_a_script_is_read_in_its_encoding(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], source: bytes, said: str
) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(source)
    request = Profile((str(path),), False, 1, 3, (), str(tmp_path))
    run_program(request, 60.0, lambda passed: None)
    assert said in capfd.readouterr().out


def test_an_uncaught_exception_goes_to_the_programs_own_hook(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = """
import sys
def hook(kind, error, frames):
    print("hook", kind.__name__, error, frames.tb_frame.f_code.co_name, frames.tb_lineno)
sys.excepthook = hook
def f(): raise ValueError("bad")
f()
"""
    found = ran(tmp_path, text)
    assert found.exit_code == 1
    told = capfd.readouterr()
    assert "hook ValueError bad <module> 7" in told.out
    assert "Traceback" not in told.err


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_the_program_starts_find_its_functions(tmp_path: Path, method: str) -> None:
    text = f"""
import multiprocessing
def twice(x): return 2 * x
if __name__ == "__main__":
    with multiprocessing.get_context("{method}").Pool(1) as pool:
        assert pool.map(twice, [1, 2]) == [2, 4]
"""
    assert ran(tmp_path, text).exit_code == 0


def test_a_forked_child_runs_its_handlers_at_exit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fork = "import atexit, os\natexit.register(lambda: print('bye', flush=True))\n"
    found = ran(tmp_path, fork + "if os.fork(): os.wait()")
    assert found.exit_code == 0
    assert capfd.readouterr().out.count("bye") == 2


def test_a_mark_in_compiled_code_is_nothing(tmp_path: Path, real_start: None) -> None:
    text = """
import torch, gpuperf
m = torch.nn.Linear(8, 8)
o = torch.optim.SGD(m.parameters(), 0.1)
def whole(x):
    gpuperf.step()
    with gpuperf.region("part"):
        return m(x).relu()
take = torch.compile(o.step, backend="eager")
for backend, shapes in (("eager", 6), ("inductor", 1)):
    torch.compiler.reset()
    forward = torch.compile(whole, backend=backend, fullgraph=True, dynamic=False)
    for i in range(20):
        size = min(i // 2 + 1, shapes)  # compiled for each of them
        forward(torch.ones(size, 8)).sum().backward()
        take()
        o.zero_grad()
        gpuperf.step()
"""
    found = ran(tmp_path, text, timeout_s=120.0)
    assert (found.exit_code, found.error) == (0, "")
    assert names(found) == ALL
    assert found.steps == {"step": 39}


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("import torch\nfor i in range(9): torch.ones(3).sum()", False),
        ("from torch.optim import Adam", True),
        ("def f(loss):\n    loss.backward()", True),
        ("import gpuperf", True),
        ("def f():\n    def g(): return torch.optim.SGD", True),
    ],
)
def test_a_program_is_known_by_what_it_names(text: str, marks: bool) -> None:
    assert marks_steps(compile(text, "train.py", "exec")) is marks


def test_a_thread_that_imports_torch_is_left_alone(tmp_path: Path) -> None:
    text = """
import threading, time
def work():
    import torch
    x = torch.ones(8)
    for _ in range(300):
        x.add_(1)
        time.sleep(0.01)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("done")
"""
    found = ran(tmp_path, text)
    assert (found.exit_code, found.error) == (0, "")


def test_what_a_thread_marks_is_not_traced(tmp_path: Path) -> None:
    text = """
import threading
def work():
    import torch, gpuperf
    for _ in range(9):
        torch.ones(8).sum()
        gpuperf.step()
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    found = ran(tmp_path, text)
    assert found.exit_code == 0
    assert names(found) == [("plain", 3), ("trace", 0), ("accounting", 3)]
    assert "another thread" in found.passed[1].reason


def test_a_cost_of_the_wrong_type_costs_the_program_nothing(tmp_path: Path) -> None:
    text = """
import torch, gpuperf
from gpuperf import Cost, Flops
@torch.library.custom_op("own::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
gpuperf.register_cost("own::twice", lambda call: Cost((Flops(1.5, "elementwise", "fp32"),)))
for _ in range(20):
    twice(torch.ones(8))
    gpuperf.step()
"""
    found = ran(tmp_path, text)
    assert (found.exit_code, found.error) == (0, "")
    assert names(found) == ALL


def test_a_dispatch_mode_of_the_programs_own_stays_whole(tmp_path: Path) -> None:
    text = """
import torch, gpuperf
from torch.utils.flop_counter import FlopCounterMode
x = torch.ones(64, 64)
with FlopCounterMode(display=False) as counter:
    for _ in range(11):
        x @ x
        gpuperf.step()
x @ x
assert counter.get_total_flops() == 11 * 2 * 64**3, counter.get_total_flops()
"""
    found = ran(tmp_path, text)
    assert (found.exit_code, found.error) == (0, "")
    assert names(found)[:2] == ALL[:2]
    assert "dispatch mode" in found.passed[2].reason


def test_a_forked_child_is_not_profiled(tmp_path: Path) -> None:
    text = """
import os, sys, torch
torch.ones(3).sum()
if not (child := os.fork()):
    os._exit(int(torch.autograd._profiler_enabled()))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert ran(tmp_path, text).exit_code == 0
