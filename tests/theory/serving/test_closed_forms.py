"""Compare simulated servers with closed forms, within four standard errors of the simulation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from gpuperf.theory.serving.inflight import simulate_inflight
from gpuperf.theory.serving.load import Load, Server
from gpuperf.theory.serving.outcome import Outcome, reduce
from gpuperf.theory.serving.static import simulate_static
from gpuperf.theory.serving.steps import ConstantStep
from gpuperf.theory.serving.trace import SHARES, TRACES, draw_load, with_arrivals

PASS_S = 0.01
PASSES = ConstantStep(PASS_S)
ROOM = 10**6  # pages
ERRORS = 4.0  # standard errors


def served(load: Load, server: Server) -> Outcome:
    return reduce(simulate_inflight(load, PASSES, server), load, server)


def assert_near(batches: Sequence[float], expected: float, share: float) -> None:
    """The mean of *batches* is *expected* within its standard error, itself under *share* of it."""
    error = statistics.stdev(batches) / math.sqrt(len(batches))
    assert error < share * expected
    assert abs(statistics.fmean(batches) - expected) < ERRORS * error


MOMENTS = {  # of outputs of 20 tokens on average: the mean and the mean square
    "constant": (20, 400),
    "uniform": (20.5, 41 * 81 / 6),
    "geometric": (20, 2 * 400 - 20),
}


@pytest.mark.parametrize("law", MOMENTS)
def test_one_slot_is_a_queue_of_pollaczek_and_khinchine(law: str) -> None:
    """M/D/1 for constant lengths, M/G/1 for others: wait = λ·E[S²] / 2(1 − ρ)."""
    mean, square = MOMENTS[law]
    rate = 0.5 / (mean * PASS_S)
    load = with_arrivals(draw_load(law, 6_000, 3, 16, 20), rate, 3)
    log = simulate_inflight(load, PASSES, Server(1, ROOM))
    waits = [first - PASS_S - at for first, at in zip(log.first_s, load.arrival_s, strict=True)]
    batches = [statistics.fmean(waits[i : i + 500]) for i in range(0, 6_000, 500)]
    assert_near(batches, rate * square * PASS_S**2 / 2 / (1 - 0.5), 0.1)
    static = simulate_static(load, PASSES, Server(1, ROOM), padded=True)
    assert static.first_s == pytest.approx(log.first_s)


def test_a_busy_server_with_slots_for_all_delays_by_half_a_pass() -> None:
    """M/D/∞ but for the beginning of a pass: N = λ·(outputs + 1/2)·pass."""
    rate = 5_000.0
    load = with_arrivals(draw_load("constant", 8_000, 1, 16, 20), rate, 1)
    outcome = served(load, Server(10**5, ROOM, chunk=2**20))
    error = math.sqrt(1 / 12 / len(load)) / 20.5  # of the mean of uniform delays
    assert outcome.present / outcome.requests_per_s / PASS_S == pytest.approx(20.5, rel=6 * error)
    assert outcome.mean_wait_s == pytest.approx(1.5 * PASS_S, rel=0.02)


def uniform_below(n: int) -> float:
    return min(1.0, n / 512)


def geometric_below(n: int) -> float:
    return 1 - (1 - 1 / 256) ** n


@pytest.mark.parametrize("batch", [8, 64])
@pytest.mark.parametrize(
    ("law", "mean", "below"),
    [("uniform", 256.5, uniform_below), ("geometric", 256.0, geometric_below)],
)
def test_static_slots_are_used_by_mean_over_longest(
    law: str, mean: float, below: Callable[[int], float], batch: int
) -> None:
    """The longest of B outputs is Σ (1 − P(output ≤ n)^B) on average."""
    longest = sum(1 - below(n) ** batch for n in range(9_000))
    loads = [draw_load(law, 8 * batch, seed, 16, 256) for seed in range(16)]
    server = Server(batch, ROOM)
    used = [
        reduce(simulate_static(load, PASSES, server, padded=True), load, server).slots_used
        for load in loads
    ]
    assert_near(used, mean / longest, 0.03)


def test_constant_lengths_use_all_slots_of_both_policies() -> None:
    load, server = draw_load("constant", 512, 0, 512, 256), Server(32, ROOM)
    outcomes = [
        served(load, server),
        *(reduce(simulate_static(load, PASSES, server, p), load, server) for p in (True, False)),
    ]
    assert {outcome.slots_used for outcome in outcomes[1:]} == {1.0}
    assert outcomes[0].slots_used == pytest.approx(1, abs=0.01)  # prompts join in two passes
    assert outcomes[0].tokens_per_s == pytest.approx(outcomes[1].tokens_per_s, rel=0.01)


@pytest.mark.parametrize("page", [1, 16, 256])
def test_half_a_page_is_wasted_by_each_sequence(page: int) -> None:
    load = draw_load("conversation", 600, 5, 0, 0)
    outcome = served(load, Server(32, ROOM, page))
    cached = [
        (tokens * prompt + tokens * tokens / 2, tokens)
        for prompt, tokens in zip(load.prompt, load.output, strict=True)
    ]
    length = sum(of for of, _ in cached) / sum(of for _, of in cached)
    assert outcome.waste == pytest.approx(
        1 - length / (length + (page - 1) / 2), rel=0.05, abs=1e-12
    )


def test_a_shared_prefix_is_stored_once() -> None:
    load = draw_load("constant", 64, 0, 100, 50)
    alone, shared = (served(load, Server(64, ROOM, 16, 2**20, prefix)) for prefix in (0, 200))
    whole = 200 // 16 * 16
    assert (alone.saved, shared.saved) == (0, pytest.approx(63 * whole))
    own = 64 * (-(-(200 - whole + 149) // 16) * 16)  # each with a copy of the partial page
    assert shared.peak == whole + own


@pytest.mark.parametrize(
    ("trace", "prompt", "output"),
    [("conversation", (1154.7, 0.96), (211.1, 0.77)), ("code", (2047.8, 0.96), (27.9, 2.15))],
)
def test_drawn_lengths_have_the_moments_of_the_published_trace(
    trace: str, prompt: tuple[float, float], output: tuple[float, float]
) -> None:
    """The largest hundredth of the outputs of `code` is most of their variance, so it varies."""
    load = draw_load(trace, 20_000, 0, 0, 0)
    for drawn, (mean, variation) in ((load.prompt, prompt), (load.output, output)):
        assert statistics.fmean(drawn) == pytest.approx(mean, rel=0.03)
        assert statistics.pstdev(drawn) / statistics.fmean(drawn) == pytest.approx(
            variation, rel=0.12
        )
    assert len(SHARES) == 27


def test_a_seed_draws_the_same_requests_again() -> None:
    first, again, other = (draw_load("code", 50, seed, 0, 0) for seed in (0, 0, 1))
    assert first == again != other


def test_every_trace_has_lengths_of_at_least_a_token() -> None:
    for trace in TRACES:
        load = draw_load(trace, 1_000, 0, 1, 1)
        assert min(*load.prompt, *load.output) >= 1


def test_a_law_has_its_mean() -> None:
    for law, error in (("uniform", 0.01), ("geometric", 0.02), ("log-normal", 0.02)):
        load = draw_load(law, 10_000, 0, 512, 256)
        assert statistics.fmean(load.output) == pytest.approx(256.25, rel=4 * error)


def test_littles_law_finds_a_wrong_time() -> None:
    load, server = draw_load("geometric", 200, 0, 16, 20), Server(4, ROOM)
    log = simulate_inflight(load, PASSES, server)
    assert reduce(log, load, server).caveats == ()
    log.finish_s[7] -= 0.5
    (caveat,) = reduce(log, load, server).caveats
    assert caveat.kind == "littles-law"
    assert "Little's law is violated" in caveat.message
    assert replace(reduce(log, load, server), little=0.0).caveats == ()
