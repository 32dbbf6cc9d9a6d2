"""Does an audit tell replays and what overflows from wrong results?"""

from __future__ import annotations

import pytest
import torch
from judged_vectors import COUNT, make, piece  # noqa: F401

from gpuperf.judge.evidence import Audit
from gpuperf.judge.inside import answers
from gpuperf.judge.inside.answers import Answers
from gpuperf.judge.inside.comparison import answer_of, is_excused, is_sound, overflows
from gpuperf.judge.inside.problem import Problem
from gpuperf.judge.protocol import Contents


def audit_of(
    problem: Problem,
    contents: Contents,
    result: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
    earlier: list[Contents] | None = None,
) -> Audit:
    """Audit *result* for *contents*, of a slot that had *earlier* ones."""
    worker = Answers()
    worker._problem, worker._memory, worker._held = problem, torch.empty(0), {0: contents}
    worker._earlier = {0: earlier or []}
    monkeypatch.setattr(Answers, "_changed", lambda self, slot, tensors, side: "")
    monkeypatch.setattr(answers, "view_of", lambda *_: result)
    return worker._audit(0, (None,), 0)  # type: ignore[arg-type]


def product(x: torch.Tensor) -> torch.Tensor:
    """Return products of 25 numbers each, which in fp32 are infinite and in fp64 are not."""
    return (x.reshape(-1, 25) + 1e3).prod(1)


def test_the_references_own_result_is_right_where_it_overflows_and_no_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Problem(make, product, lambda x: product(x.double()))
    earlier = [Contents(0, 7, "scale"), Contents(0, 8, "scale")]
    own = product(make(1)[0])
    assert own.isinf().all()
    audit = audit_of(problem, Contents(0, 1, "scale"), own, monkeypatch, earlier)
    assert not (audit.reason or audit.undecided or audit.replayed)
    other = audit_of(problem, Contents(0, 1, "scale"), own.fill_(torch.nan), monkeypatch, earlier)
    assert other.undecided and not other.replayed


def test_a_mean_of_other_inputs_is_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def mean(x: torch.Tensor) -> torch.Tensor:
        return x.mean().expand(32).clone()

    problem = Problem(make, mean, lambda x: mean(x.double()))
    earlier = [Contents(0, 7, "nominal"), Contents(0, 8, "nominal")]
    audit = audit_of(problem, Contents(0, 1, "nominal"), mean(make(7)[0]), monkeypatch, earlier)
    assert audit.replayed


def test_complex_results_are_replayed_and_overflow_as_real_ones_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Problem(make, torch.fft.fft, lambda x: torch.fft.fft(x.double()))
    earlier = [Contents(0, 7, "nominal"), Contents(0, 8, "nominal")]
    other = torch.fft.fft(make(7)[0])
    assert audit_of(problem, Contents(0, 1, "nominal"), other, monkeypatch, earlier).replayed

    def raised(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.complex(60 * x, x))

    large = Problem(make, raised, lambda x: raised(x.double()))
    (x,) = make(1)
    answer = answer_of(large, [x], harsh=True)
    assert overflows(answer) and not is_sound(answer)
    right = torch.polar(torch.exp(60 * x), x)
    assert is_excused(large, [x], [right], answer)
    assert not is_excused(large, [x], [torch.where(right.isfinite(), right * 1.1, right)], answer)


@pytest.mark.parametrize(
    ("answered", "replayed"), [(7, True), (None, False)], ids=["of earlier contents", "zeros"]
)
def test_a_replay_is_known_by_a_result_that_tells_its_inputs(
    answered: int | None, replayed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros answer earlier contents of which no element is above the threshold."""

    def above(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) if x.abs().max() > 1e-3 else x * 0

    def mostly(seed: int) -> list[torch.Tensor]:
        return [make(seed)[0] * (1 if seed < 8 else 1e-6)]

    problem = Problem(mostly, above, lambda x: above(x.double()))
    result = above(mostly(answered)[0]) if answered else torch.zeros(COUNT)
    earlier = [Contents(0, 7, "nominal"), Contents(0, 8, "nominal")]
    audit = audit_of(problem, Contents(0, 1, "nominal"), result, monkeypatch, earlier)
    assert audit.reason and audit.replayed is replayed
