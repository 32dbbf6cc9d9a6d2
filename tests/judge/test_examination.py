"""Is a task's answer right, and the task fair, whatever the size of its results?"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gpuperf.judge.inside.comparison import _moved, answer_of, compare
from gpuperf.judge.inside.examine import allowed_kinds, unfair_ways
from gpuperf.judge.inside.problem import Problem
from gpuperf.measure import pieces

COUNT = 600


@pytest.fixture(params=[2**25, 50], ids=["whole", "by pieces"], autouse=True)
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", request.param)


def make(seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(COUNT)]


def problem_of(function: Callable[[torch.Tensor, torch.Tensor], object]) -> Problem:
    """A task that computes into memory of its own, and returns that again at each call."""
    own, wide = torch.empty(COUNT), torch.empty(COUNT, dtype=torch.float64)

    def call(x: torch.Tensor) -> torch.Tensor:
        function(x, own)
        return own

    def exact(x: torch.Tensor) -> torch.Tensor:
        function(x.double(), wide)
        return wide

    return Problem(make, call, exact)


def test_a_reference_that_returns_one_buffer_is_fair() -> None:
    problem = problem_of(lambda x, out: torch.mul(x, 2, out=out))
    kinds = allowed_kinds(problem, 1)
    assert kinds[0] == "nominal" and len(kinds) > 1
    assert not list(unfair_ways(problem, kinds, 1))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x, out: out.normal_(), "random"),
        (lambda x, out: out.fill_(3.0), "constant"),
        (lambda x, out: out.copy_(x), "trivial"),
    ],
)
def test_unfair_tasks_are_known(function: Callable[..., object], kind: str) -> None:
    problem = problem_of(function)
    found = [each.kind for each in unfair_ways(problem, allowed_kinds(problem, 1), 1)]
    assert kind in found


def test_an_answer_to_harsh_values_grants_what_rounding_the_inputs_moves() -> None:
    problem = problem_of(lambda x, out: torch.sin(1000 * x, out=out))
    (x,) = make(3)
    answer = answer_of(problem, [x], harsh=True)
    assert answer.moved is not None
    assert not torch.equal(answer.moved[0], answer.exact[0])
    rounded = torch.sin(1000 * (x.double() * (1 + 2.0**-24))).float()
    error, bound = compare(problem, [x], [rounded], answer)
    assert error <= bound


def test_scalars_and_vectors_are_moved_alike() -> None:
    for value in (torch.tensor(60.0), torch.tensor([60.0]), torch.full((300,), 60.0)):
        off = (_moved(value) - 60.0).abs() / 60.0
        assert off.max().item() == pytest.approx(8 * 2.0**-24, rel=1e-6)
    assert _moved(torch.tensor([3])).tolist() == [3]
