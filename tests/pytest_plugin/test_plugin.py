"""The fixture `gpuperf` in sessions of pytest, on a clock by which an operation takes 10 µs."""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

# pytester forgets what a session of its own imports first, so all comes here.
import numpy  # noqa: F401
import pytest
import scipy.special  # noqa: F401
import torch  # noqa: F401
from command_line import PEAKS
from torch.utils._python_dispatch import TorchDispatchMode

import gpuperf.measure.callables
import gpuperf.pytest_plugin.table
from gpuperf.measure.callables import OpenedDevice, opened_device
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Record
from gpuperf.model.samples import Samples
from gpuperf.peaks.file import parse_peaks
from gpuperf.pytest_plugin import passes
from gpuperf.pytest_plugin.session import MOST_NAME, case_name
from gpuperf.run.cache import keep
from gpuperf.run.ceilings import device_key

pytest_plugins = ("pytester",)
OP_S = 10e-6
REPOSITORY = Path(__file__).parents[1] / "kernel_repository"

TESTS = """
import pytest, torch
x = torch.ones(8)
"""


class Operations(TorchDispatchMode):
    """Counts the operations of torch that run under it."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


class Processes:
    """`subprocess` for further processes of pytest, which run in this one."""

    DEVNULL = subprocess.DEVNULL

    def run(self, words: list[str], cwd: Path, **_: Any) -> Any:
        quick = ["-p", "no:unraisableexception"]  # it collects garbage five times
        pytest.main([*words[3:], *quick], plugins=[gpuperf.pytest_plugin])
        return subprocess.CompletedProcess(words, 0, "", "")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A device by which an operation takes 10 µs, 0.5 % more or less in each process."""
    monkeypatch.setenv("GPUPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # of what is installed here
    for name in ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS"):  # pytest's own output depends on them
        monkeypatch.delenv(name, raising=False)
    processes = itertools.count()

    def time(
        self: OpenedDevice, call: Callable[[], Any], case: Any, contract: Any, cost: Any, *_: Any
    ) -> Record:
        with Operations() as operations:
            result = call()
        if isinstance(result, str):
            return Record("", case, contract, "oom", self.fingerprint, result, cost=cost)
        draw = random.Random(next(processes))
        level = operations.count * OP_S * draw.gauss(1, 0.005)
        samples = Samples(tuple(level * (1 + 0.004 * (i % 5 - 2)) for i in range(40)))
        times = {"wall": samples}
        return Record(
            "", case, contract, "ok", self.fingerprint, times=times, primary="wall", cost=cost
        )

    monkeypatch.setattr(OpenedDevice, "time", time)
    monkeypatch.setattr(passes, "subprocess", Processes())


Session = Callable[..., pytest.RunResult]


@pytest.fixture
def session(pytester: pytest.Pytester, clock: None) -> Session:
    """Runs tests in a session of their own, with warnings as errors."""
    turn = itertools.count()

    def run(tests: str, *words: str) -> pytest.RunResult:
        path = pytester.path / "test_kernels.py"
        if tests:
            path.write_text(TESTS + tests)
            os.utime(path, (next(turn), 1e9 + next(turn)))
        return pytester.runpytest_inprocess(
            "-W", "error", *words, plugins=[gpuperf.pytest_plugin], no_reraise_ctrlc=True
        )

    return run


def text_of(result: pytest.RunResult) -> str:
    """The output, with lines that were wrapped joined."""
    return " ".join("\n".join(result.outlines + result.errlines).split())


ONE = "def test_double(gpuperf): gpuperf(lambda: x * 2)\n"


def test_a_collection_opens_no_session_of_measurements(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(gpuperf.pytest_plugin, "session_of")  # what imports torch
    result = session(ONE, "--collect-only", "--gpuperf-save", "run.jsonl", "--gpuperf-only")
    assert result.ret == 0
    assert "test_double" in text_of(result)


def test_a_run_file_that_cannot_be_written_is_refused_before_a_test(session: Session) -> None:
    result = session(ONE, "--gpuperf-save", "/proc/none/run")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = "nothing can be written to /proc/none: No such file or directory hint: choose another"
    assert f"{said} --gpuperf-save" in text_of(result)


def test_a_test_measures_and_the_session_ends_with_a_table(session: Session) -> None:
    result = session(
        "def test_double(gpuperf):\n"
        "    result = gpuperf(lambda: x * 2, name='mul', dtype='fp32')\n"
        "    assert 9e-6 < result.time_s < 11e-6\n"
        "    assert result.record.case.op == 'test_kernels.py-test_double-mul'\n"
    )
    result.assert_outcomes(passed=1)
    text = text_of(result)
    assert "wall timer, cold cache" in text
    assert "on a CPU: times by the wall timer, and no GPU was measured" in text
    assert "test_double::mul" in text
    start = next(i for i, line in enumerate(result.outlines) if "wall timer" in line)
    assert max(map(len, result.outlines[start:])) <= 100


def test_it_measures_for_real(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        TESTS
        + "def test_it(gpuperf):\n    assert 0 < gpuperf(lambda: x * 2, budget_s=0.02).time_s < 1\n"
    )
    result = pytester.runpytest_inprocess(plugins=[gpuperf.pytest_plugin])
    result.assert_outcomes(passed=1)


def test_no_fixture_no_table(session: Session) -> None:
    assert "gpuperf =" not in text_of(session("def test_it(): pass"))


BUDGETS = """
@pytest.mark.gpuperf(max_us={})
def test_it(gpuperf): gpuperf(lambda: x * 2)
"""


def test_a_budget_fails_where_the_whole_interval_is_beyond_it(session: Session) -> None:
    over = session(BUDGETS.format(8))
    over.assert_outcomes(failed=1)
    assert " µs) is over the budget of 8 µs" in text_of(over)
    within = session(BUDGETS.format(12))
    within.assert_outcomes(passed=1)
    assert "≤ 12 µs within" in text_of(within)


def test_an_interval_that_contains_the_budget_passes_with_a_warning(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random.Random, "gauss", lambda self, mean, spread: 1.0)
    result = session(BUDGETS.format(10))
    result.assert_outcomes(passed=1)
    assert "≤ 10 µs not decided" in text_of(result)
    assert "contains the budget of 10 µs" in text_of(result)


ROOF = """
@pytest.mark.gpuperf(min_fraction_of_roof={})
def test_it(gpuperf): gpuperf(lambda: x * 2, {})
"""


@pytest.fixture
def roofs(clock: None) -> None:
    """A memory of 20 GB/s."""
    device = opened_device("cpu")
    opened = Opened(device.device.facts, device.fingerprint)
    known = replace(parse_peaks(PEAKS, "a test"), sm_count=opened.device.sm_count)
    keep("ceilings", device_key(opened), known)


@pytest.mark.usefixtures("roofs")
def test_a_share_of_the_roof_is_a_budget(session: Session) -> None:
    session(ROOF.format(0.7, "bytes=160_000")).assert_outcomes(passed=1)
    under = session(ROOF.format(0.9, "bytes=160_000"))
    under.assert_outcomes(failed=1)
    assert "is under the budget of 90 %" in text_of(under)


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        ("", "min_fraction_of_roof needs the cost of a call hint: gpuperf(fn, cost="),
        ("bytes=4", "min_fraction_of_roof needs a known roof: "),
    ],
)
def test_a_share_of_nothing_cannot_pass(session: Session, cost: str, sentence: str) -> None:
    result = session(ROOF.format(0.1, cost))
    result.assert_outcomes(failed=1)
    assert sentence in text_of(result)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("max_usec=3", "'max_usec'; did you mean 'max_us'? hint: known: max_us"),
        ("max_us='fast'", "max_us='fast' of the marker gpuperf is not a positive number hint:"),
        ("max_us=True", "max_us=True of the marker"),
        ("max_us=float('nan')", "max_us=nan of the marker"),
        ("20", "an argument without a name, 20 hint: @pytest.mark.gpuperf(max_us=20"),
        ("min_fraction_of_roof=80", "is not a number above 0 and up to 1 hint: min_fra"),
    ],
)
def test_a_slip_of_the_marker_is_an_error(session: Session, words: str, sentence: str) -> None:
    result = session(f"@pytest.mark.gpuperf({words})\n{ONE}")
    result.assert_outcomes(errors=1)
    assert sentence in text_of(result)


def test_a_marker_that_nothing_is_measured_for_fails(session: Session) -> None:
    result = session(
        "mark = pytest.mark.gpuperf(max_us=9)\n"
        "@mark\ndef test_a(): pass\n"
        "@mark\ndef test_b(gpuperf): pass\n"
        "@mark\ndef test_c(gpuperf): pytest.skip('not today')\n"
    )
    result.assert_outcomes(failed=2, skipped=1)
    assert text_of(result).count("measures nothing hint:") == 2


def test_the_closest_marker_counts(session: Session) -> None:
    result = session(
        "pytestmark = pytest.mark.gpuperf(max_us=1)\n@pytest.mark.gpuperf(max_us=30)\n" + ONE
    )
    result.assert_outcomes(passed=1)


def test_what_gets_no_time_never_passes(session: Session) -> None:
    result = session(
        "import gpuperf as library\n"
        "def test_a(gpuperf): gpuperf(lambda: 'no memory')\n"
        "def test_b(gpuperf):\n"
        "    with pytest.raises(library.NotMeasured): gpuperf(lambda: 'no memory')\n"
        "def test_c(gpuperf): gpuperf(lambda: x, percision=1)\n"
    )
    result.assert_outcomes(failed=3)
    assert "it got no time: oom: no memory" in text_of(result)
    assert "did you mean 'precision'?" in text_of(result)
    assert "hint: known: " in text_of(result)


def test_two_measurements_of_a_test_have_two_names(session: Session, tmp_path: Path) -> None:
    session(
        "def test_it(gpuperf):\n    gpuperf(lambda: x * 2)\n    gpuperf(lambda: x * 2 * 2)\n",
        "--gpuperf-save=run",
    ).assert_outcomes(passed=1)
    run = gpuperf.read_run("run.jsonl")
    names = [case.op for case in run.header.plan]
    assert names == ["test_kernels.py-test_it", "test_kernels.py-test_it-2"]


def test_names_stay_distinct_and_the_same() -> None:
    long = "tests/kernels/test_attention.py::test_forward_and_backward[bf16-{}]"
    labels = [long.format(n) for n in (1, 2)] + ["t.py::a[x y]", "t.py::a[x/y]", "t.py::a[x-y]"]
    names = [case_name(label) for label in labels]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= MOST_NAME
    assert names[4] == "t.py-a-x-y"
    assert names == [case_name(label) for label in labels]


def test_a_run_is_saved_also_when_tests_fail_or_are_interrupted(session: Session) -> None:
    failing = ONE + "def test_b(gpuperf):\n    gpuperf(lambda: x + x + x)\n    assert False\n"
    result = session(failing + "def test_c(): raise KeyboardInterrupt\n", "--gpuperf-save=all")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    run = gpuperf.read_run("all.jsonl")
    assert [record.status for record in run.records] == ["ok", "ok"]
    assert run.problems == ()
    assert len(run.header.plan) == 2
    again = session("", "--gpuperf-save=all")
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    assert "all.jsonl exists hint: remove it, or choose another" in text_of(again)


def test_lines_are_in_the_file_before_the_session_ends(session: Session) -> None:
    looks = "def test_b():\n    import gpuperf\n    assert gpuperf.read_run('now.jsonl').records\n"
    session(ONE + looks, "--gpuperf-save=now").assert_outcomes(passed=2)


SEVERAL = """
@pytest.mark.parametrize("n", [2, 4])
def test_chain(gpuperf, n):
    def chain():
        y = x
        for _ in range(n {}): y = y * 2
    gpuperf(chain)
"""


def test_a_slower_test_fails_the_session(session: Session) -> None:
    session(SEVERAL.format(""), "--gpuperf-save=base", "--gpuperf-passes=6")
    base = gpuperf.read_run("base.jsonl")
    assert sorted(record.pass_index for record in base.records) == sorted([*range(6)] * 2)
    same = session("", "--gpuperf-compare=base")
    assert same.ret == 0, text_of(same)
    assert "not slower" in text_of(same) or "unchanged" in text_of(same)
    slower = session(SEVERAL.format("+ (n == 4)"), "--gpuperf-compare=base.jsonl")
    slower.assert_outcomes(passed=2)
    assert slower.ret == 1
    assert "1 measurement is slower than in base.jsonl" in text_of(slower)
    assert "SLOWER" in text_of(slower)


def test_what_cannot_be_compared_is_said_and_does_not_pass(session: Session) -> None:
    session(ONE, "--gpuperf-save=base").assert_outcomes(passed=1)
    few = session("", "--gpuperf-compare=base")
    assert few.ret == 1
    assert "1 and 1 processes are too few to estimate their scatter" in text_of(few)
    other = session(ONE.replace("* 2", "* 2, cache='hot'"), "--gpuperf-compare=base")
    assert other.ret == 1
    assert "cache is 'cold' and 'hot'" in text_of(other)
    new = session(ONE.replace("double", "other"), "--gpuperf-compare=base")
    assert new.ret == 1
    assert "nothing could be compared with base: the baseline does not have it" in text_of(new)
    none = session("def test_it(): pass", "--gpuperf-compare=base")
    assert none.ret == 1
    assert "nothing was measured" in text_of(none)


def test_a_new_test_beside_a_known_one_passes(session: Session) -> None:
    session(ONE, "--gpuperf-save=base", "--gpuperf-passes=6")
    both = session(ONE + ONE.replace("double", "other"), "--gpuperf-compare=base")
    assert both.ret == 0, text_of(both)
    assert " new" in text_of(both)


def test_another_device_is_not_compared(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session(ONE, "--gpuperf-save=base", "--gpuperf-passes=6")
    device = opened_device("cpu")
    hard = {**device.fingerprint.hard, "name": "another"}
    monkeypatch.setattr(device, "fingerprint", replace(device.fingerprint, hard=hard))
    result = session("", "--gpuperf-compare=base")
    assert result.ret == 1
    assert "not comparable" in text_of(result)
    assert "'another'" in text_of(result)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--gpuperf-compare=nosuch"], "nosuch cannot be read"),
        (["--gpuperf-passes=3"], "needs a run file to write or to compare with hint: add"),
        (["--gpuperf-passes=0"], "--gpuperf-passes 0 is not from 1 to 100"),
        (["--gpuperf-only", "--gpuperf-skip"], "exclude each other"),
        (["--gpuperf-pass=nosuch"], "nosuch does not hold the plan of a further process"),
    ],
)
def test_a_slip_of_an_option_is_one_sentence(
    session: Session, words: list[str], sentence: str
) -> None:
    result = session(ONE, *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert sentence in text_of(result)


def test_tests_that_measure_are_chosen_or_skipped(session: Session) -> None:
    both = ONE + "def test_plain(): pass\n"
    session(both, "--gpuperf-only").assert_outcomes(passed=1, deselected=1)
    session("", "--gpuperf-skip").assert_outcomes(passed=1, skipped=1)


def test_under_xdist_nothing_is_timed(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    result = session(ONE)
    result.assert_outcomes(errors=1)
    assert "does not measure under pytest-xdist" in text_of(result)
    session("", "--gpuperf-skip").assert_outcomes(skipped=1)


TEN_LINES = """
import pytest, rowwise, torch
x, weight = torch.randn(64, 512), torch.ones(512)

@pytest.mark.gpuperf(max_us=100)
def test_rms_norm_is_fast(gpuperf):
    gpuperf(lambda: rowwise.rms_norm(x, weight), bytes=2 * x.nbytes)

def test_swiglu_is_fast(gpuperf):
    gpuperf(lambda: rowwise.swiglu(x, x), bytes=3 * x.nbytes)
"""


def test_ten_lines_guard_a_repository_of_somebody_else(
    session: Session, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(REPOSITORY, pytester.path, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(pytester.path)
    assert len(TEN_LINES.strip().splitlines()) <= 10
    saved = session(
        TEN_LINES, "--gpuperf-save=base", "--gpuperf-passes=6", "checks", "test_kernels.py"
    )
    assert saved.ret == 0, text_of(saved)
    assert session("", "--gpuperf-compare=base").ret == 0
    package = pytester.path / "rowwise" / "__init__.py"
    text = package.read_text()
    package.write_text(text.replace("silu(gate) * x", "silu(gate.clone()) * x"))
    sys.modules.pop("rowwise", None)
    slower = session("", "--gpuperf-compare=base")
    assert slower.ret == 1
    assert "1 measurement is slower than in base" in text_of(slower)
    assert "test_swiglu_is_fast" in text_of(slower)


def test_a_project_without_gpu_tests_imports_the_standard_library_alone() -> None:
    tree = ast.parse(inspect.getsource(gpuperf.pytest_plugin))
    modules = [
        node.names[0].name if isinstance(node, ast.Import) else node.module or ""
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not [name for name in modules if name.startswith("gpuperf")]
    assert {"argparse", "os", "pytest"} <= set(modules)


def test_a_noisy_interval_that_reaches_below_zero_decides_nothing() -> None:
    from types import SimpleNamespace

    from gpuperf.pytest_plugin.budget import Budget, decide

    record = SimpleNamespace(status="ok", samples=object())
    placed = SimpleNamespace(fraction=0.5, roof="measured", reasons=())
    noisy: Any = SimpleNamespace(
        record=record, placement=placed, time_s=1e-6, interval_s=(-1e-6, 3e-6)
    )
    assert decide(noisy, Budget(least_fraction=0.8)).word == "not decided"
    assert decide(noisy, Budget(least_fraction=0.1)).word == "within"
