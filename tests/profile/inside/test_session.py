"""Do passes take successive windows of steps, and what of them is kept?"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gpuperf import marks
from gpuperf.model.codec import encode
from gpuperf.model.program import PASSES, WHOLE, PassName, PassResult
from gpuperf.model.protocol import PassDone
from gpuperf.profile.inside import dispatch as watching
from gpuperf.profile.inside import session, unmarked
from gpuperf.profile.inside.courses import LONGEST, Limits
from gpuperf.profile.inside.passes import Pass, counting
from gpuperf.profile.inside.passes.counting import Counting
from gpuperf.profile.inside.passes.plain import Plain
from gpuperf.profile.inside.session import IMPLICIT, STEP, Session
from gpuperf.profile.trace.kineto import read_trace
from gpuperf.profile.trace.steps import marked


class Program:
    """A loop of additions, and the results of its passes."""

    def __init__(
        self, folder: Path, warmup: int = 2, steps: int = 4, passes: tuple[PassName, ...] = PASSES
    ) -> None:
        self.results: list[PassResult] = []
        self.session = Session(Limits(warmup, steps), passes, folder, self.results.append)
        self.x = torch.ones(8)
        marks.listen(self.session)

    def work(self) -> None:
        self.x.add_(1)

    def of(self, name: PassName, region: str = STEP) -> PassResult:
        (found,) = (p for p in self.results if (p.name, p.region) == (name, region))
        return found


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    yield
    marks.listen(None)


def test_a_mark_without_a_listener_does_nothing() -> None:
    marks.listen(None)
    marks.step()
    reached = False
    with marks.region("x"):
        reached = True
    assert reached


def test_the_passes_take_their_windows_one_after_the_other(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for _ in range(20):
        program.work()
        marks.step()
    program.session.close()
    assert [(p.name, p.steps) for p in program.results] == [
        ("plain", 4),
        ("trace", 4),
        ("counters", 0),
        ("accounting", 4),
        ("kernels", 0),
    ]
    assert len(program.of("plain").steps_s) == 4
    assert program.of("plain").wall_s >= sum(program.of("plain").steps_s) > 0
    assert [one.call.name for one in program.of("accounting").calls] == ["aten::add_"] * 4
    assert program.of("accounting").flop_counts == (0,) * 4
    assert "only NVIDIA GPUs" in program.of("counters").reason
    assert Path(program.of("trace").trace).stat().st_size > 0
    assert program.session.courses[STEP].done == 19
    assert program.session.courses[STEP].finished


def test_a_region_is_what_runs_inside(tmp_path: Path) -> None:
    program = Program(tmp_path, passes=("accounting",))
    for _ in range(6):
        program.x.mul_(2)
        with marks.region("inner part"):
            program.work()
    assert [one.call.name for one in program.of("accounting", "inner part").calls] == [
        "aten::add_"
    ] * 4


def test_of_regions_in_each_other_the_outermost_counts(tmp_path: Path) -> None:
    program = Program(tmp_path, passes=("accounting",))
    for _ in range(6):
        with marks.region("outer"):
            program.work()
            with marks.region("inner"):
                program.work()
    assert len(program.of("accounting", "outer").calls) == 2 * 4
    assert "inner" not in program.session.courses


def test_a_step_of_too_many_calls_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_SEEN", 5)
    program = Program(tmp_path, warmup=0, passes=("accounting",))
    for _ in range(4):
        with marks.region("two"):
            program.work()
            program.work()
        with marks.region("eight"):
            for _ in range(8):
                program.work()
    program.session.close()
    two = program.of("accounting", "two")
    assert (two.steps, len(two.calls), two.flop_counts, two.reason) == (2, 4, (0, 0), "")
    for _ in range(4):
        with marks.region("eight"):
            for _ in range(8):
                program.work()
    eight = program.of("accounting", "eight")
    assert (eight.steps, len(eight.calls)) == (1, 5)
    assert eight.reason == "3 calls could not be recorded"


def test_torch_counts_the_flops_of_each_step(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, passes=("accounting",))
    for size in (2, 3, 4, 5):
        with marks.region("product"):
            torch.ones(size, size) @ torch.ones(size, size)
    assert program.of("accounting", "product").flop_counts == (16, 54, 128, 250)


def test_two_regions_have_passes_of_their_own(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, passes=("plain", "accounting"))
    for _ in range(20):
        with marks.region("a"):
            program.work()
        with marks.region("b"):
            program.x.mul_(1)
    assert [one.call.name for one in program.of("accounting", "b").calls] == ["aten::mul_"] * 4
    assert program.of("plain", "a").steps == program.of("plain", "b").steps == 4


def test_an_optimizers_step_counts_until_something_is_marked(tmp_path: Path) -> None:
    program = Program(tmp_path, passes=("accounting",))
    for _ in range(3):
        program.session.optimized()
    assert list(program.session.courses) == [IMPLICIT]
    for _ in range(7):
        program.work()
        marks.step()
        program.session.optimized()
    assert list(program.session.courses) == [STEP]
    assert program.of("accounting").steps == 4


def test_what_a_pass_has_when_the_program_ends_is_kept(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=1, steps=10)
    for _ in range(5):
        program.work()
        marks.step()
    program.session.close()
    assert program.of("plain").steps == 3
    assert len(program.results) == 1


def test_a_pass_without_a_step_says_so(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, passes=("plain",))
    marks.step()
    program.session.close()
    assert program.of("plain").reason == "the program ended"


def test_another_thread_marks_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, passes=("plain",))
    marks.step()
    other = threading.Thread(target=lambda: [marks.step() for _ in range(50)])
    other.start()
    other.join()
    assert program.session.courses[STEP].done == 0


def test_a_forked_child_marks_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, passes=("plain",))
    marks.step()
    marks._process = os.getpid() + 1  # what a child would see
    marks.step()
    assert program.session.courses[STEP].done == 0


def counted(own: torch.profiler.profile) -> int:
    return sum(event.count for event in own.key_averages() if event.key == "aten::add_")


def test_a_profiler_of_the_programs_own_is_left_alone(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, passes=("trace", "accounting"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        for _ in range(12):
            program.work()
            marks.step()
    program.session.close()
    assert program.of("trace").steps == 0
    assert "uses torch.profiler itself" in program.of("trace").reason
    assert program.of("accounting").steps == 4
    assert counted(own) >= 8  # the accounting pass dispatches a call anew


def test_a_profiler_that_the_program_starts_later_takes_the_place_of_ours(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, passes=("trace", "accounting"))
    marks.step()
    program.work()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        for _ in range(12):
            marks.step()
            program.work()
    program.session.close()
    assert "uses torch.profiler itself" in program.of("trace").reason
    assert program.of("accounting").steps == 4
    assert counted(own) >= 8  # the accounting pass dispatches a call anew


@pytest.mark.skipif(not hasattr(torch.autograd.profiler, "emit_itt"), reason="of newer torch")
def test_marks_for_other_tools_have_their_way(tmp_path: Path) -> None:
    program = Program(tmp_path, passes=("trace",))
    for i in range(9):
        if i == 4:
            with torch.autograd.profiler.emit_itt():
                program.work()
        program.work()
        marks.step()
    assert "uses torch.profiler itself" in program.of("trace").reason


def test_a_program_that_marks_nothing_is_traced_for_some_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unmarked, "HOST_TRACED_S", 0.2)
    program = Program(tmp_path)
    program.session.watch()
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        program.work()
        time.sleep(0.01)
    assert not torch.autograd._profiler_enabled()
    program.session.close()
    (whole,) = program.results
    assert (whole.region, whole.name, whole.steps) == (WHOLE, "trace", 1)
    assert 0.1 < whole.wall_s < 0.9


def test_what_was_traced_of_a_program_is_dropped_at_its_first_mark(tmp_path: Path) -> None:
    program = Program(tmp_path, passes=("trace",))
    program.session.watch()
    program.work()
    marks.step()
    assert not torch.autograd._profiler_enabled()
    program.session.close()
    assert WHOLE not in [passed.region for passed in program.results]


def test_a_region_may_be_called_step(tmp_path: Path) -> None:
    program = Program(tmp_path, passes=("accounting",))
    for _ in range(6):
        with marks.region("step"):
            program.work()
    assert program.of("accounting").steps == 4


def test_each_trace_has_a_file_of_its_own(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, steps=2, passes=("trace",))
    for _ in range(8):
        for name in ("a", "b", "c"):
            with marks.region(name):
                program.work()
    files = [passed.trace for passed in program.results]
    assert len(set(files)) == len(files) == 3


class Unspeakable:
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    "name",
    [7, None, "x" * 5000, "two\nlines", "\ud800", '"quoted\\', "", Unspeakable()],
    ids=["number", "none", "long", "lines", "surrogate", "quotes", "empty", "unspeakable"],
)
def test_a_region_of_any_name_disturbs_nothing(tmp_path: Path, name: object) -> None:
    program = Program(tmp_path, warmup=0, steps=1, passes=("plain", "trace"))
    for _ in range(3):
        with marks.region(name):  # type: ignore[arg-type]
            program.work()
        with marks.region("other"):
            program.work()
    program.session.close()
    assert float(program.x[0]) == 7
    assert program.of("trace", "other").steps == 1
    for passed in program.results:
        assert encode(PassDone(passed))
        assert len(passed.region) <= LONGEST
        if passed.trace:
            timeline = read_trace(Path(passed.trace))
            assert len(marked(timeline, passed.region)) == 1


class Broken(Plain):
    """Fails where it is told to."""

    at = ""

    def start(self) -> None:
        self.trip("start")

    def begin(self) -> None:
        self.trip("begin")
        super().begin()

    def end(self) -> None:
        self.trip("end")
        super().end()

    def finish(self) -> PassResult:
        self.trip("finish")
        return super().finish()

    def abandon(self) -> None:
        raise KeyError("abandon")

    def trip(self, where: str) -> None:
        if where == self.at:
            raise KeyError(f"at {where}")


@pytest.mark.parametrize("where", ["open", "start", "begin", "end", "finish"])
def test_a_pass_that_fails_says_so_and_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def open_broken(name: PassName, region: str, *_: object) -> Pass:
        if where == "open":
            raise KeyError("at open")
        broken = Broken(region)
        broken.at = where
        return broken

    program = Program(tmp_path, warmup=0, steps=1, passes=("plain",))
    monkeypatch.setattr(session, "open_pass", open_broken)
    for _ in range(3):
        program.work()
        marks.step()
    program.session.close()
    (told,) = program.results
    assert (told.steps, told.reason) == (0, repr(f"at {where}"))


def test_a_program_goes_on_when_its_profiler_is_gone(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, steps=1)
    refused: list[PassResult] = []

    def gone(passed: PassResult) -> None:
        refused.append(passed)
        raise BrokenPipeError

    program.session.say = gone
    for _ in range(9):
        program.work()
        marks.step()
    program.session.close()
    assert refused


def test_an_interrupt_in_a_pass_goes_on_to_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Plain) -> PassResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(Plain, "finish", interrupted)
    program = Program(tmp_path, warmup=0, steps=1, passes=("plain",))
    marks.step()
    with pytest.raises(KeyboardInterrupt):
        marks.step()
    assert program.of("plain").reason == "KeyboardInterrupt"


def test_an_error_in_a_region_is_the_programs(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0)
    with pytest.raises(ZeroDivisionError), marks.region("x"):
        _ = 1 / 0
    assert program.session._nested == []


def test_a_forked_childs_optimizer_marks_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, steps=1, passes=("trace",))
    program.session.optimized()
    child = os.fork()
    if child == 0:
        program.session.optimized()
        program.session.close()
        program.session.watch()
        os._exit(len(program.results) + program.session.courses[IMPLICIT].done)
    assert os.waitpid(child, 0)[1] == 0
    assert list(tmp_path.iterdir()) == []
    program.session.close()


def test_a_step_that_did_not_end_is_none(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, steps=9, passes=("plain",))
    for _ in range(3):
        marks.step()
        time.sleep(0.01)
    time.sleep(0.2)
    program.session.close()
    plain = program.of("plain")
    assert plain.steps == len(plain.steps_s) == 2
    assert sum(plain.steps_s) <= plain.wall_s < 0.1


@pytest.mark.parametrize("name", ["trace", "accounting"])
def test_what_a_slow_pass_has_of_an_unfinished_step_does_not_count(
    tmp_path: Path, name: PassName
) -> None:
    program = Program(tmp_path, warmup=0, steps=4, passes=(name,))
    for _ in range(3):
        marks.step()
        program.work()
    program.session.close()
    found = program.of(name)
    assert found.steps == 2
    if name == "accounting":
        assert len(found.calls) == len(found.flop_counts) == 2


def test_counters_that_the_program_ends_in_count_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counters(Plain):
        name: PassName = "counters"

    monkeypatch.setattr(session, "open_pass", lambda name, region, *_: Counters(region))
    program = Program(tmp_path, warmup=0, steps=4, passes=("counters",))
    for _ in range(3):
        marks.step()
    program.session.close()
    assert program.of("counters").reason == "the program ended during this pass"


def test_what_lies_between_the_steps_of_a_region_is_not_its_time(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, steps=3, passes=("plain",))
    began = time.perf_counter()
    for _ in range(4):
        with marks.region("part"):
            time.sleep(0.01)
        time.sleep(0.05)
    whole_s = time.perf_counter() - began
    plain = program.of("plain", "part")
    assert plain.wall_s == sum(plain.steps_s) < whole_s - 2 * 0.05


class Sampler:
    def begin(self) -> None:
        pass

    def end(self) -> None:
        raise AssertionError("what was counted is of no use")


def test_counters_refuse_what_is_done_between_steps() -> None:
    counting = Counting("part", 1.0)
    counting._sampler = Sampler()
    for _ in range(3):
        counting.begin()
        time.sleep(0.01)
        counting.end()
        time.sleep(0.002)
    with pytest.raises(RuntimeError, match="between the steps would count"):
        counting.finish()


def test_a_region_that_never_comes_again_blocks_nobody(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, steps=3, passes=("plain", "trace"))
    with marks.region("once"):
        program.work()
    for _ in range(10):
        with marks.region("often"):
            program.work()
    assert program.of("trace", "often").steps == 3
    program.session.close()
    assert program.of("plain", "once").steps == 1


def test_a_slow_pass_of_a_region_that_went_away_ends_with_what_it_has(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, steps=3, passes=("trace",))
    with marks.region("once"):
        program.work()
    for _ in range(30):
        with marks.region("often"):
            program.work()
    assert program.of("trace", "once").steps == 1
    assert program.of("trace", "often").steps == 3


def test_a_slow_pass_without_a_step_gives_way_with_a_reason(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, steps=3, passes=("accounting",))
    program.session.optimized()  # begins a step, and no other comes
    program.session._explicit = True
    for _ in range(30):
        with marks.region("often"):
            program.work()
    assert "of another, which waited" in program.of("accounting", IMPLICIT).reason
    assert program.of("accounting", "often").steps == 3


def test_steps_beside_another_regions_slow_pass_are_not_timed(tmp_path: Path) -> None:
    program = Program(tmp_path, warmup=0, steps=2, passes=("plain", "trace"))
    for i in range(12):
        with marks.region("a"):
            program.work()
        if i >= 1:
            with marks.region("b"):
                time.sleep(0.05 if torch.autograd._profiler_enabled() else 0.0)
    assert program.of("trace", "b").steps == 2
    assert max(program.of("plain", "b").steps_s) < 0.05


def test_a_plain_pass_behind_a_trace_of_a_gpu_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "on_gpu", lambda: True)
    program = Program(tmp_path, passes=("plain", "trace"))
    for name in ("first", "second"):
        for _ in range(12):
            with marks.region(name):
                program.work()
    told = {(p.region, p.name): p.reason for p in program.results if p.steps}
    assert told["first", "plain"] == told["first", "trace"] == ""
    assert told["second", "plain"] == session.BEHIND


class Counter:
    """Counters that take three steps."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.counter = SimpleNamespace(passes=3)

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *raised: object) -> None:
        self.calls.append("close")

    def step_kernels(self, most: int) -> Counter:
        return self

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> bool:
        self.calls.append("stop")
        return self.calls.count("stop") == 3

    def counts(self) -> list[dict[str, float]]:
        return [{"dram_read_bytes": 1.0}]


@pytest.mark.parametrize("steps", [3, 9])
def test_counters_of_kernels_take_the_steps_that_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    counter = Counter()
    monkeypatch.setattr(counting, "_counters", lambda cuda: counter)
    program = Program(tmp_path, warmup=0, steps=1, passes=("kernels",))
    for _ in range(steps):
        marks.step()
    program.session.close()
    found = program.of("kernels")
    if steps < 4:  # a step begins where the one before ends
        assert (found.steps, found.kernels) == (0, ())
        assert found.reason == "the counters need 3 steps, and had 2"
    else:
        assert (found.steps, found.kernels) == (3, ({"dram_read_bytes": 1.0},))
    assert counter.calls[-1] == "close"


def test_counters_of_kernels_begin_anew_where_the_program_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter()
    monkeypatch.setattr(counting, "_counters", lambda cuda: counter)
    program = Program(tmp_path, warmup=0, steps=1, passes=("kernels",))
    marks.step()
    program.session.give_way()
    counter.calls.clear()
    for _ in range(5):
        marks.step()
    program.session.close()
    assert program.of("kernels").steps == 3
    assert counter.calls == ["start", "stop"] * 3 + ["close"]


def test_kernels_that_may_wait_for_another_gpu_are_not_run_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_counters", lambda cuda: Counter())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1)
    program = Program(tmp_path, warmup=0, steps=1, passes=("kernels",))
    for _ in range(5):
        marks.step()
    program.session.close()
    assert "wait for those of another GPU" in program.of("kernels").reason


@pytest.mark.parametrize("cut", [True, False])
def test_what_was_traced_before_the_program_ended_is_a_part_of_it(
    tmp_path: Path, cut: bool
) -> None:
    program = Program(tmp_path)
    program.session.watch()
    program.work()
    if cut:
        program.session._cut()
    program.work()
    program.session.close()
    (found,) = program.results
    assert (found.region, found.cut) == ("program", cut)
