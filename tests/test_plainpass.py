"""Which steps tell the time of a step, how many are taken, and what is said where they scatter?"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gpuperf import marks
from gpuperf.analysis.plainpass import chosen, scatter, step_s
from gpuperf.measure import courses
from gpuperf.measure.courses import LATER, Course, Limits
from gpuperf.measure.loading import Loading
from gpuperf.measure.passes.plain import Plain
from gpuperf.measure.session import STEP, Session
from gpuperf.model.program import Passed, PassName
from gpuperf.model.samples import Samples


def plain(*times: float, ahead: int = 0, reason: str = "", data_s: float = 0.0) -> Passed:
    return Passed("step", "plain", len(times), times, sum(times), ahead=ahead, reason=reason,
                  data_s=data_s)  # fmt: skip


def noisy(level: float, count: int, seed: int = 0) -> tuple[float, ...]:
    draw = random.Random(seed)
    return tuple(level * (1 + 0.005 * draw.gauss(0, 1)) for _ in range(count))


TRACE = Passed("step", "trace", 5)


@pytest.mark.parametrize(("launches", "ahead", "cuda", "later"), [
    (1000, 0, True, False),  # 1000 launches cost 2.5 ms of 60 ms more behind a trace
    (1000, 40, True, True),  # the device had not begun: the host has time for them
    (100, 0, True, True), (1000, 0, False, True),
])  # fmt: skip
def test_a_second_plain_pass_counts_where_launches_hardly_matter(
    launches: float, ahead: int, cuda: bool, later: bool
) -> None:
    first, second = plain(*noisy(58e-3, 10)), plain(*noisy(62e-3, 40), ahead=ahead, reason="behind")
    own, *rest = chosen((first, TRACE, second), launches, cuda)
    assert (own.steps == 40) is later
    assert own.reason == ""
    assert rest == [TRACE]


def test_a_second_plain_pass_of_few_steps_or_none_does_not_count() -> None:
    first = plain(*noisy(58e-3, 10))
    for second in (plain(0.1, 0.1), Passed("step", "plain", 0, reason="the program ended")):
        assert chosen((first, second), 0, True) == (first,)


def test_steps_before_the_clock_fell_do_not_count() -> None:
    times = noisy(58e-3, 40) + noisy(62e-3, 120, 1)
    (own,) = chosen((plain(*times, ahead=160, data_s=1.6),), 0, True)
    assert 118 <= own.steps <= 122
    assert own.ahead == own.steps
    assert own.wall_s == pytest.approx(sum(own.steps_s))
    assert own.data_s == pytest.approx(1.6 * own.steps / 160)
    assert step_s(Samples(own.steps_s)) == pytest.approx(62e-3, rel=2e-3)


def test_a_change_late_in_the_pass_is_of_the_program() -> None:
    times = noisy(58e-3, 100) + noisy(62e-3, 30, 1)
    (own,) = chosen((plain(*times),), 0, True)
    assert own.steps == 130


def test_a_loop_that_waits_for_data_again_and_again_takes_its_mean() -> None:
    bursts = Samples((20e-3, 20e-3, 20e-3, 180e-3) * 10)
    assert step_s(bursts) == pytest.approx(60e-3)
    once = Samples((20e-3,) * 20 + (500e-3,))
    assert step_s(once) == pytest.approx(20e-3)
    assert step_s(Samples(noisy(20e-3, 50))) == Samples(noisy(20e-3, 50)).median_s


@pytest.mark.parametrize(("times", "word"), [
    ([50e-3 + i * 1e-3 for i in range(20)], "went from"),
    ([20e-3, 20e-3, 20e-3, 20e-3, 20e-3, 90e-3, 20e-3, 90e-3, 22e-3, 90e-3, 90e-3, 21e-3],
     "take up to 90"),
    ([20e-3, 25e-3, 21e-3, 26e-3, 20e-3, 27e-3, 20e-3, 25e-3], "between 20"),
])  # fmt: skip
def test_what_scatters_is_said(times: list[float], word: str) -> None:
    doubt = scatter(plain(*times))
    assert doubt is not None
    assert word in doubt.message
    assert doubt.hint


def test_steady_steps_have_no_doubt() -> None:
    assert scatter(plain(*noisy(60e-3, 30))) is None
    assert scatter(plain(1.0, 2.0)) is None


class Clock:
    """A clock that the program sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


def taken(
    tmp_path: Path, clock: Clock, limits: Limits, rounds: int, each_s: float,
    names: tuple[PassName, ...] = ("plain", "accounting"),
) -> list[tuple[str, int]]:  # fmt: skip
    """The steps of each pass over so many rounds."""
    told: list[Passed] = []
    session = Session(limits, names, tmp_path, told.append)
    for _ in range(rounds):
        session.step()
        clock.now += each_s
    session.close()
    assert session.courses[STEP].done == rounds - 1
    return [(p.name, p.steps) for p in told]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(courses, "time", found)
    monkeypatch.setattr("gpuperf.measure.session.time", found)
    return found


def test_slow_steps_are_bound_by_time_and_not_by_count(tmp_path: Path, clock: Clock) -> None:
    """Steps of 22 s: one goes by, two are timed, one is accounted for."""
    found = taken(tmp_path, clock, Limits(5, 10, 60.0, True), 8, 22.0)
    assert found == [("plain", 2), ("accounting", 1), ("plain", 2)]


def test_short_steps_are_timed_once_more_at_the_end(
    tmp_path: Path, clock: Clock
) -> None:
    found = taken(tmp_path, clock, Limits(5, 10, 60.0, True), 2000, 1e-3)
    assert found[:2] == [("plain", 10), ("accounting", 4)]
    assert found[2][0] == "plain"
    assert 900 < found[2][1] <= LATER


@pytest.mark.parametrize(("ahead", "scatter", "unsure"), [
    (0, 0.1, True), (0, 0.0, False), (10, 0.1, False),
])  # fmt: skip
def test_a_gpu_that_waits_for_a_host_that_scatters_is_timed_for_longer(
    ahead: int, scatter: float, unsure: bool
) -> None:
    running = Plain("step")
    running.cuda, running.steps, running._ahead = True, 10, ahead
    draw = random.Random(1)
    running._clocks = [t for i in range(10) for t in (i, i + 0.01 * (1 + scatter * draw.random()))]
    assert running.unsure is unsure
    limits = Limits(0, 10, 60.0, True)
    course = Course("step", limits, [], running=running, wanted=10, taken=10)
    course.pass_s = time.perf_counter()
    assert course.complete is not unsure
    course.taken = 30
    assert course.complete


def test_steps_of_a_number_that_was_asked_for_are_as_many(tmp_path: Path, clock: Clock) -> None:
    assert taken(tmp_path, clock, Limits(5, 10, 60.0), 100, 1e-3) == [
        ("plain", 10), ("accounting", 4),
    ]  # fmt: skip


def test_a_second_plain_pass_waits_for_the_card_to_warm_up() -> None:
    limits, now = Limits(0, 3, 60.0, True), time.perf_counter()
    course = Course("step", limits, [("plain", LATER)], ended_s=now)
    assert not course.warm
    course.ended_s -= courses.SETTLE_S
    assert course.warm


def test_the_time_that_a_loop_waits_for_its_loader_is_known_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kept(name: str) -> Callable[..., object]:
        kind, attribute = name.split(".")
        own: Callable[..., object] = getattr(getattr(torch.utils.data.dataloader, kind), attribute)
        monkeypatch.setattr(f"torch.utils.data.dataloader.{name}", own)
        return own

    for name in ("DataLoader.__iter__", "_BaseDataLoaderIter.__next__"):
        kept(name)
    loading = Loading()
    loading.install()

    class Slow(TensorDataset):
        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(0.02)
            return torch.ones(1)

    began = time.perf_counter()
    found = [batch for batch in DataLoader(Slow(torch.ones(6)), batch_size=2)]
    whole_s = time.perf_counter() - began
    assert len(found) == 3
    assert 6 * 0.02 <= loading.waited_s <= whole_s
    assert "test_plainpass.py:" in loading.where


def test_the_plain_pass_has_the_waits_of_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuperf.measure.passes import plain as plain_pass

    loading = Loading()
    loading._place = ("train.py", 7)
    monkeypatch.setattr(plain_pass, "loading", loading)
    told: list[Passed] = []
    session = Session(Limits(1, 3), ("plain",), tmp_path, told.append)
    for _ in range(6):
        session.step()
        loading.waited_s += 0.5
    marks.listen(None)
    assert (told[0].data_s, told[0].data_where) == (1.5, "train.py:7")
