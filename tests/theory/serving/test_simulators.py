"""Compare the simulators with ones that take each pass and each sequence on its own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import naive_server
import numpy
import pytest
from naive_server import Served

from gpuperf.theory.serving.inflight import simulate_inflight
from gpuperf.theory.serving.load import Load, Server
from gpuperf.theory.serving.log import Log
from gpuperf.theory.serving.outcome import reduce
from gpuperf.theory.serving.static import simulate_static
from gpuperf.theory.serving.steps import Chunk

SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Linear:
    """Passes whose time is linear in their prompts, their sequences and their contexts."""

    def step_s(self, prefill: Sequence[Chunk], sequences: int, context: int) -> float:
        tokens = sum(tokens * (1 + 0.01 * before) for tokens, before in prefill)
        return 1.0 + 0.03 * tokens + 0.05 * sequences + 0.002 * context


def drawn(seed: int, requests: int = 40) -> tuple[Load, Server]:
    """A load that a server of a small cache can serve, most of them with preemptions."""
    draws = random.Random(seed)
    page, prefix = draws.choice((1, 2, 5, 16)), draws.choice((0, 0, 7, 33))
    arrivals = sorted(draws.choice((0.0, draws.uniform(0, 900))) for _ in range(requests))
    prompts = [draws.randint(1, 40) for _ in range(requests)]
    outputs = [draws.choice((1, 2, draws.randint(1, 60))) for _ in range(requests)]
    pages = -(-(prefix + 100) // page) * draws.choice((1, 2, 4))
    return Load(arrivals, prompts, outputs), Server(
        draws.randint(1, 9), pages, page, draws.choice((8, 64)), prefix
    )


def assert_alike(log: Log, load: Load, server: Server, served: Served) -> None:
    assert log.first_s == pytest.approx([r.wrote_s[0] for r in served.requests])
    assert log.finish_s == pytest.approx([r.wrote_s[-1] for r in served.requests])
    assert [len(r.wrote_s) for r in served.requests] == list(load.output)
    outcome = reduce(log, load, server)
    assert outcome.tokens == sum(load.output)
    assert outcome.preemptions == served.preemptions
    duration = outcome.duration_s
    assert outcome.stored * duration == pytest.approx(served.stored, rel=0.02)
    assert outcome.reserved * duration == pytest.approx(served.reserved, rel=0.02)
    assert abs(outcome.little) < 1e-9
    assert outcome.caveats == ()
    exact = numpy.quantile(served.gaps_s, SHARES, method="inverted_cdf")
    assert outcome.tbt_s == pytest.approx(tuple(exact), rel=1e-6)


@pytest.mark.parametrize("seed", range(24))
def test_inflight_batching_is_that_of_single_passes(seed: int) -> None:
    load, server = drawn(seed)
    log = simulate_inflight(load, Linear(), server)
    assert_alike(log, load, server, naive_server.serve_inflight(load, Linear(), server))


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_static_batching_is_that_of_single_passes(seed: int, padded: bool) -> None:
    load, server = drawn(seed)
    log = simulate_static(load, Linear(), server, padded)
    assert_alike(log, load, server, naive_server.serve_static(load, Linear(), server, padded))
