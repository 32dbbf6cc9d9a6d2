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
from gpuperf.model.program import PassName, PassResult
from gpuperf.model.samples import Samples, mean_precision
from gpuperf.profile.inside import courses
from gpuperf.profile.inside.courses import FORWARD, LATER, Course, Limits
from gpuperf.profile.inside.loading import Loading
from gpuperf.profile.inside.passes.plain import Plain
from gpuperf.profile.inside.session import STEP, Session
from gpuperf.profile.plainpass import choose_plain_pass, phases_caveat, scatter_caveat, step_s


def plain(*times: float, ahead: int = 0, reason: str = "", data_s: float = 0.0) -> PassResult:
    return PassResult(
        "step", "plain", len(times), times, sum(times), ahead=ahead, reason=reason, data_s=data_s
    )


def noisy(level: float, count: int, seed: int = 0) -> tuple[float, ...]:
    draw = random.Random(seed)
    return tuple(level * (1 + 0.005 * draw.gauss(0, 1)) for _ in range(count))


TRACE = PassResult("step", "trace", 5)


@pytest.mark.parametrize(
    ("launches", "ahead", "cuda", "later"),
    [
        (1000, 0, True, False),  # 1000 launches cost 2.5 ms of 60 ms more behind a trace
        (1000, 40, True, True),  # the device had not begun: the host has time for them
        (100, 0, True, True),
        (1000, 0, False, True),
    ],
)
def test_a_second_plain_pass_counts_where_launches_hardly_matter(
    launches: float, ahead: int, cuda: bool, later: bool
) -> None:
    first, second = plain(*noisy(58e-3, 10)), plain(*noisy(62e-3, 40), ahead=ahead, reason="behind")
    own, *rest = choose_plain_pass((first, TRACE, second), launches, cuda)
    assert (own.steps == 40) is later
    assert own.reason == ""
    assert rest == [TRACE]


def test_a_second_plain_pass_of_few_steps_or_none_does_not_count() -> None:
    first = plain(*noisy(58e-3, 10))
    for second in (plain(0.1, 0.1), PassResult("step", "plain", 0, reason="the program ended")):
        assert choose_plain_pass((first, second), 0, True) == (first,)


def test_steps_before_the_clock_fell_do_not_count() -> None:
    times = noisy(58e-3, 40) + noisy(62e-3, 120, 1)
    (own,) = choose_plain_pass((plain(*times, ahead=160, data_s=1.6),), 0, True)
    assert 118 <= own.steps <= 122
    assert own.ahead == own.steps
    assert own.wall_s == pytest.approx(sum(own.steps_s))
    assert own.data_s == pytest.approx(1.6 * own.steps / 160)
    assert step_s(Samples(own.steps_s)) == pytest.approx(62e-3, rel=2e-3)


def test_a_change_late_in_the_pass_is_of_the_program() -> None:
    times = noisy(58e-3, 100) + noisy(62e-3, 30, 1)
    (own,) = choose_plain_pass((plain(*times),), 0, True)
    assert own.steps == 130


RESNET = tuple(
    v * 1e-3
    for v in (
        31.21,
        22.34,
        21.73,
        20.93,
        17.0,
        16.94,
        26.63,
        36.54,
        20.68,
        24.55,
        24.9,
        25.89,
        16.95,
        23.6,
        31.65,
        25.02,
        17.88,
        24.61,
        32.57,
        20.04,
        27.4,
        22.3,
        22.32,
        22.51,
        18.04,
        18.33,
        23.04,
        17.44,
        16.95,
        27.97,
    )
)
SHORT_PROMPT = tuple(
    v * 1e-3
    for v in (
        6.82,
        6.32,
        6.28,
        6.63,
        6.35,
        6.25,
        6.28,
        6.21,
        6.29,
        6.32,
        6.28,
        6.44,
        6.32,
        6.24,
        6.3,
        6.26,
        39.5,
    )
)
DRIFTS = tuple(
    v * 1e-3
    for v in (
        13.18,
        13.05,
        12.97,
        12.96,
        12.97,
        12.86,
        12.8,
        12.97,
        12.85,
        12.85,
        12.82,
        12.83,
        12.78,
        12.85,
        12.74,
        12.74,
        12.69,
        12.69,
        12.64,
        12.6,
        12.6,
        12.62,
        12.72,
        12.71,
        12.92,
        13.01,
        13.11,
        13.14,
        13.28,
        13.08,
        13.64,
        13.39,
        13.27,
        13.5,
        13.38,
        13.1,
        12.91,
        12.74,
        12.74,
        12.77,
        12.85,
    )
)


@pytest.mark.parametrize(
    "times",
    [
        (20e-3, 20e-3, 20e-3, 180e-3) * 10,
        (20e-3,) * 20 + (500e-3,),
        RESNET,
        SHORT_PROMPT,
        DRIFTS,
        noisy(20e-3, 50),
    ],
)
def test_a_step_takes_what_a_clock_around_the_loop_says(times: tuple[float, ...]) -> None:
    assert step_s(Samples(times)) == pytest.approx(sum(times) / len(times))


def test_a_time_that_goes_on_changing_keeps_all_its_steps() -> None:
    times = noisy(11e-3, 40) + noisy(12e-3, 40, 1) + noisy(11e-3, 40, 2) + noisy(12e-3, 60, 3)
    (own,) = choose_plain_pass((plain(*times),), 0, True)
    assert own.steps == 180


def test_steps_of_two_phases_are_told_with_their_times() -> None:
    times = noisy(6.3e-3, 17) + noisy(17e-3, 43, 1)
    doubt = phases_caveat((plain(*times), TRACE), 400, True)
    assert doubt is not None
    assert "the first 17 of 60 took 6.299 ms" in doubt.message
    assert "later ones 17" in doubt.message
    assert "of the last 43" in doubt.hint
    late = phases_caveat((plain(*noisy(6.3e-3, 43), *noisy(17e-3, 17, 1)),), 400, True)
    assert late is not None
    assert "mean of all" in late.hint
    assert phases_caveat((plain(*noisy(17e-3, 60)),), 400, True) is None
    assert phases_caveat((TRACE,), 400, True) is None


def test_the_interval_of_a_mean_holds_it_19_times_of_20() -> None:
    draw = random.Random(7)
    held = 0
    for _ in range(400):
        values = tuple(draw.expovariate(1) + 1 for _ in range(150))
        mean = sum(values) / 150
        held += abs(mean - 2) <= mean_precision(values) * mean
    assert 0.91 * 400 < held < 0.99 * 400


def test_a_mean_of_one_value_is_not_sure() -> None:
    assert mean_precision((1.0,)) == float("inf")
    assert mean_precision((1.0, 1.0)) == 0.0


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ([50e-3 + i * 1e-3 for i in range(20)], "went from"),
        (
            [20e-3, 20e-3, 20e-3, 20e-3, 20e-3, 90e-3, 20e-3, 90e-3, 22e-3, 90e-3, 90e-3, 21e-3],
            "take up to 90",
        ),
        ([20e-3, 25e-3, 21e-3, 26e-3, 20e-3, 27e-3, 20e-3, 25e-3], "between 20"),
    ],
)
def test_what_scatters_is_said(times: list[float], word: str) -> None:
    doubt = scatter_caveat(plain(*times))
    assert doubt is not None
    assert word in doubt.message
    assert doubt.hint


def test_steady_steps_have_no_doubt() -> None:
    assert scatter_caveat(plain(*noisy(60e-3, 30))) is None
    assert scatter_caveat(plain(1.0, 2.0)) is None


class Clock:
    """A clock that the program sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


def taken(
    tmp_path: Path,
    clock: Clock,
    limits: Limits,
    rounds: int,
    each_s: float,
    names: tuple[PassName, ...] = ("plain", "accounting"),
) -> list[tuple[str, int]]:
    """The steps of each pass over so many rounds."""
    told: list[PassResult] = []
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
    monkeypatch.setattr("gpuperf.profile.inside.session.time", found)
    monkeypatch.setattr("gpuperf.profile.inside.passes.base.time", found)
    return found


def test_slow_steps_are_bound_by_time_and_not_by_count(tmp_path: Path, clock: Clock) -> None:
    """Steps of 22 s: one goes by, two are timed, one is accounted for."""
    found = taken(tmp_path, clock, Limits(5, 10, 60.0, True), 8, 22.0)
    assert found == [("plain", 2), ("accounting", 1), ("plain", 2)]


def test_short_steps_are_timed_once_more_at_the_end(tmp_path: Path, clock: Clock) -> None:
    found = taken(tmp_path, clock, Limits(5, 10, 60.0, True), 2000, 1e-3)
    assert found[:2] == [("plain", 10), ("accounting", 4)]
    assert found[2][0] == "plain"
    assert 900 < found[2][1] <= LATER


def waiting(
    clock: Clock,
    step: Callable[[int], float],
    rounds: int,
    left: tuple[PassName, ...] = ("trace", "accounting"),
    ahead: bool = False,
    budget_s: float = 60.0,
    region: str = "step",
) -> tuple[int, float]:
    """Steps and seconds of the first plain pass in a program of so many rounds of *step*, as if a
    GPU waited for its host, or else was behind it all the time (*ahead*)."""
    running = Plain("step")
    course = Course(
        region,
        Limits(0, 10, budget_s, True),
        [(name, 5) for name in left],
        running=running,
        wanted=10,
        pass_s=clock.now,
    )
    began = clock.now
    for i in range(rounds):
        running.cuda = False  # no event is recorded
        running.begin()
        clock.now += step(i)
        running.end()
        running.cuda = True
        running._ahead += ahead
        course.taken += 1
        if course.complete:
            break
    return course.taken, clock.now - began


def scattering(_: int, draw: random.Random = random.Random(5)) -> float:  # noqa: B008
    return draw.choice(RESNET)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Loading:
    own = Loading()
    monkeypatch.setattr(courses, "loading", own)
    return own


@pytest.mark.parametrize("step", [lambda _: 20e-3, scattering])
def test_a_short_program_keeps_half_of_its_steps_for_the_other_passes(
    clock: Clock, loader: Loading, step: Callable[[int], float]
) -> None:
    steps, seconds = waiting(clock, step, 150)
    assert steps == courses.FEW
    assert 0.4 < seconds < 1.6
    steps, seconds = waiting(clock, lambda i: 3 * step(i), 150)
    assert 20 <= steps <= 30
    assert 1.4 < seconds < 1.6
    assert 40 <= waiting(clock, step, 150, region=FORWARD)[0] <= 75


@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_a_loop_of_sixty_steps_has_steps_for_every_pass(
    tmp_path: Path, clock: Clock, loader: Loading, monkeypatch: pytest.MonkeyPatch, drift: float
) -> None:
    """Also where their time changes: a headline without its reasons is no profile."""
    monkeypatch.setattr(Plain, "last", True)
    monkeypatch.setattr(Plain, "changing", drift > 0)
    limits = Limits(5, 10, 60.0, True)
    found = taken(tmp_path, clock, limits, 60, 8e-3)
    assert found[:2] == [("plain", courses.FEW), ("accounting", 4)]
    others = limits.plan(("light", "trace", "counters", "accounting"))  # of a GPU
    assert limits.warmup + courses.FEW + sum(steps for _, steps in others) < 60 - 1


def test_a_pass_goes_on_until_the_mean_is_sure_where_the_loader_has_more(
    clock: Clock, loader: Loading
) -> None:
    loader._batches = 1000
    steps, seconds = waiting(clock, scattering, 1000)
    assert 8.0 <= seconds < 8.1
    assert 200 < steps < 500
    assert 2.9 < waiting(clock, lambda _: 20e-3, 1000)[1] < 3.1
    loader._given = 501
    assert waiting(clock, scattering, 1000)[1] < 1.7


def test_a_pass_goes_on_where_nothing_else_needs_the_steps(clock: Clock, loader: Loading) -> None:
    assert waiting(clock, scattering, 2000, ("plain",))[1] > 8.0
    assert waiting(clock, scattering, 2000, ("plain",), budget_s=6.0)[1] < 2.1


def test_tokens_of_a_short_prompt_do_not_end_the_pass(clock: Clock, loader: Loading) -> None:
    """A warm-up of 17 tokens, the boundary to the next generate, and then slower tokens."""
    times = (*SHORT_PROMPT, *noisy(17e-3, 900))
    steps, seconds = waiting(clock, times.__getitem__, 900, region=FORWARD)
    assert 1.5 < seconds <= 8.1
    (own,) = choose_plain_pass((plain(*times[:steps]),), 400, True)
    assert step_s(Samples(own.steps_s)) == pytest.approx(17e-3, rel=0.01)
    assert waiting(clock, lambda _: 6.3e-3, 900, region=FORWARD)[0] == courses.MANY


def test_a_drift_that_never_ends_ends_with_the_clock(clock: Clock, loader: Loading) -> None:
    steps, seconds = waiting(clock, lambda i: 10e-3 * (1 + i / 500), 9000, region=FORWARD)
    assert 8.0 <= seconds < 8.2
    assert steps > courses.MANY
    _, seconds = waiting(clock, lambda _: 1e-5, 90_000, ("plain",))
    assert seconds == pytest.approx(courses.MOST_STEPS * 1e-5)


def test_a_device_that_does_not_wait_for_its_host_is_timed_later(
    clock: Clock, loader: Loading
) -> None:
    assert waiting(clock, lambda _: 20e-3, 100, ahead=True)[0] == 10


def test_a_program_that_ends_in_a_long_plain_pass_hears_which_passes_it_lacks(
    tmp_path: Path, clock: Clock, loader: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plain, "last", True)
    found = taken(tmp_path, clock, Limits(0, 10, 60.0, True), 20, 1e-3)
    assert found == [("plain", 19), ("accounting", 0)]


def test_steps_of_a_number_that_was_asked_for_are_as_many(tmp_path: Path, clock: Clock) -> None:
    assert taken(tmp_path, clock, Limits(5, 10, 60.0), 100, 1e-3) == [
        ("plain", 10),
        ("accounting", 4),
    ]


def test_a_second_plain_pass_waits_for_the_card_to_warm_up() -> None:
    limits, now = Limits(0, 3, 60.0, True), time.perf_counter()
    course = Course("step", limits, [("plain", LATER)], ended_s=now)
    assert not course.is_warm()
    course.ended_s -= courses.SETTLE_S
    assert course.is_warm()


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
    assert loading.given is not None
    assert loading.given >= 1


def test_the_plain_pass_has_the_waits_of_its_own_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuperf.profile.inside.passes import plain as plain_pass

    loading = Loading()
    loading._place = ("train.py", 7)
    monkeypatch.setattr(plain_pass, "loading", loading)
    told: list[PassResult] = []
    session = Session(Limits(1, 3), ("plain",), tmp_path, told.append)
    for _ in range(6):
        session.step()
        loading.waited_s += 0.5
    marks.listen(None)
    assert (told[0].data_s, told[0].data_where) == (1.5, "train.py:7")
