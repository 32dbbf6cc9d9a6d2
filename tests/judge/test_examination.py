"""Is a task's answer right, and the task fair, whatever the size of its results?"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from judged_vectors import COUNT, make, piece  # noqa: F401

from gpuperf.errors import CannotMeasure
from gpuperf.judge.inside import examine
from gpuperf.judge.inside.comparison import answer_of, compare
from gpuperf.judge.inside.contents import copies_of
from gpuperf.judge.inside.examine import DRAWS, kinds_of, unfair_ways
from gpuperf.judge.inside.first_calls import first_calls, operations_of, rounds_to_tf32
from gpuperf.judge.inside.layout import take_apart
from gpuperf.judge.inside.problem import Problem
from gpuperf.measure import pieces
from gpuperf.measure.deviation import WrongResult


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
    kinds, _ = kinds_of(problem, 1)
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
    found = [each.kind for each in unfair_ways(problem, kinds_of(problem, 1)[0], 1)]
    assert kind in found


def test_a_task_that_overflows_for_its_own_values_is_unfair() -> None:
    def square(x: torch.Tensor) -> torch.Tensor:
        return (x * 300).to(x.dtype if x.dtype == torch.float64 else torch.float16) ** 2

    problem = Problem(make, square, lambda x: square(x.double()))
    assert [each.kind for each in unfair_ways(problem, ("nominal",), 1)] == ["overflow"]


def test_a_task_whose_result_is_constant_for_its_own_values_is_unfair() -> None:
    """It is not constant for larger values, but half of the calls have the task's own."""

    def above(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x - 50)

    problem = Problem(make, above, lambda x: above(x.double()))
    (found,) = unfair_ways(problem, kinds_of(problem, 1)[0], 1)
    assert found.kind == "constant" and "the values that the task draws" in found.text


@pytest.mark.parametrize(
    ("function", "views"),
    [
        (lambda x: x * 2, False),
        (lambda x: (x * 2).view(30, 20).t(), False),
        (lambda x: x.mean().expand(COUNT), True),
        (lambda x: x.view(20, 30).cumsum(1)[:, -1], True),
        (lambda x: (x * 2, (x * 3).view(20, 30).diagonal()), True),
    ],
)
def test_views_that_are_no_dense_tensors_are_known(
    function: Callable[[torch.Tensor], object], views: bool
) -> None:
    assert first_calls(Problem(make, function), 1).views is views


def test_unsigned_inputs_are_counted() -> None:
    given = [torch.arange(5).to(torch.uint16), torch.ones(3)]
    problem = Problem(lambda seed: given, lambda i, x: x * i.sum())
    assert first_calls(problem, 1).nonzero_bytes == 2 * 4 + 4 * 3


def test_results_that_no_seat_can_give_are_refused() -> None:
    problem = Problem(make, lambda x: x.to(torch.uint16))
    with pytest.raises(CannotMeasure, match="returns a tensor of uint16"):
        first_calls(problem, 1)


def test_values_for_which_the_reference_overflows_at_times_are_not_allowed() -> None:
    """A product of 600 numbers that are scaled by one of up to 8 overflows in most draws."""
    problem = Problem(
        make,
        lambda x: torch.cumprod(x.abs() + 0.3, 0),
        lambda x: torch.cumprod(x.double().abs() + 0.3, 0),
    )
    allowed = [kinds_of(problem, seed)[0] for seed in range(0, 100, 10)]
    assert all("scale" not in kinds for kinds in allowed)


def test_an_answer_to_harsh_values_grants_what_rounding_the_inputs_moves() -> None:
    problem = problem_of(lambda x, out: torch.sin(1000 * x, out=out))
    (x,) = make(3)
    answer = answer_of(problem, [x], harsh=True)
    assert answer.moved is not None
    assert not torch.equal(answer.moved[0], answer.exact[0])
    rounded = torch.sin(1000 * (x.double() * (1 + 2.0**-24))).float()
    error, bound = compare(problem, [x], [rounded], answer)
    assert error <= bound


def test_only_small_inputs_are_copied_for_a_reference_that_leaves_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pieces, "PIECE", COUNT - 1)
    large, (small,) = make(1)[0], [torch.ones(3)]
    problem = Problem(make, torch.add)
    for pure in (True, False):
        kept, copied = copies_of(replace(problem, pure=pure), [large, small])
        assert (kept is large) == pure
        assert copied is not small
        assert torch.equal(kept, large) and torch.equal(copied, small)


def test_a_reference_that_changes_whole_numbers_is_computed_once_on_each() -> None:
    def count(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, i.add_(1)

    problem = Problem(make, count, lambda x, i: count(x.double(), i))
    x, i = make(1)[0], torch.arange(4)
    answer = answer_of(problem, [x, i], harsh=True)
    assert answer.wide
    assert answer.own[1].tolist() == answer.exact[1].tolist() == [1, 2, 3, 4]


def test_values_whose_neighbours_the_reference_refuses_grant_nothing() -> None:
    """As a cross entropy refuses probabilities above 1."""

    def bounded(x: torch.Tensor) -> torch.Tensor:
        if x.max() > 1:
            raise RuntimeError("all elements of input should be between 0 and 1")
        return x.log()

    problem = Problem(make, bounded, lambda x: bounded(x.double()))
    answer = answer_of(problem, [torch.ones(COUNT)], harsh=True)
    assert answer.wide
    assert answer.moved is None
    compare(problem, [torch.ones(COUNT)], [torch.zeros(COUNT)], answer)
    alike = Problem(lambda seed: [torch.ones(20, 30)], bounded, lambda x: bounded(x.double()))
    assert "constant" not in kinds_of(alike, 1)[0]


@pytest.mark.parametrize("inplace", [True, False])
def test_inputs_that_other_values_change_are_known(inplace: bool) -> None:
    """Values from 0 to 1 are as they were after relu, those of other kinds are not."""

    def draw(seed: int) -> list[torch.Tensor]:
        return [make(seed)[0].abs().reshape(20, 30)]

    found = first_calls(Problem(draw, lambda x: F.relu(x, inplace=inplace) + 1), 1)
    assert found.changed == ({0} if inplace else set())


def test_a_reference_that_refuses_other_values_is_observed_on_its_own_alone() -> None:
    def positive(x: torch.Tensor) -> torch.Tensor:
        assert (x > 0).all(), "only positive values"
        return x + 1

    found = first_calls(Problem(lambda seed: [make(seed)[0].abs().reshape(20, 30)], positive), 1)
    assert found.changed == set()


def test_a_reference_that_runs_out_of_memory_is_not_taken_for_one_that_changes_nothing() -> None:
    calls = []

    def large(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        if len(calls) > 1:
            raise torch.OutOfMemoryError("no room")
        return x + 1

    with pytest.raises(torch.OutOfMemoryError):
        first_calls(Problem(make, large), 1)


@pytest.mark.parametrize("tf32", [True, False])
def test_a_convolution_may_round_to_tf32_where_torch_lets_it(
    tf32: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference is computed in fp32 here, so that its own error grants nothing."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    torch.manual_seed(5)
    x, w = torch.randn(2, 8, 12, 12), torch.randn(4, 8, 3, 3)
    problem = Problem(lambda seed: [x, w], F.conv2d, lambda x, w: F.conv2d(x.double(), w.double()))
    counts = operations_of(problem, [x, w], take_apart([x, w], [])).flops
    assert sum(counts.values()) == 2 * 2 * 4 * 8 * 9 * 100
    problem = replace(problem, tf32=rounds_to_tf32(counts))
    assert problem.tf32 == tf32
    shorter = [(t.view(torch.int32) & ~0x1FFF).view(torch.float32) for t in (x, w)]
    result = F.conv2d(*shorter)
    answer = answer_of(problem, [x, w])
    if tf32:
        compare(problem, [x, w], [result], answer)
    else:
        with pytest.raises(WrongResult, match="is off by"):
            compare(problem, [x, w], [result], answer)
    halves = F.conv2d(x.bfloat16(), w.bfloat16()).float()
    with pytest.raises(WrongResult, match="is off by"):
        compare(problem, [x, w], [halves], answer)


def test_a_product_may_not_round_to_tf32_by_default() -> None:
    a = torch.randn(8, 8)
    problem = Problem(lambda seed: [a], lambda a: a @ a)
    assert not rounds_to_tf32(operations_of(problem, [a], take_apart([a], [])).flops)


def test_the_answers_of_one_kind_are_gone_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "DRAWING_S", 600.0)
    alive: list[int] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        every = (each for each in gc.get_objects() if issubclass(type(each), torch.Tensor))
        alive.append(sum(each.numel() == COUNT for each in every))
        return x + 1

    kinds_of(Problem(make, call), 1)
    assert len(alive) == 4 * DRAWS
    assert len(set(alive)) == 1


NO_ROOM = (
    torch.OutOfMemoryError("no room"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
)


@pytest.mark.parametrize("error", NO_ROOM, ids=["by its type", "in words"])
def test_kinds_whose_answers_do_not_fit_in_memory_are_told_apart(error: Exception) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 50:  # of values times 64
            raise error
        return x + 1

    kinds, crowded = kinds_of(Problem(make, call), 1)
    assert "extreme" in crowded
    assert {"nominal", "scale", "constant"} <= set(kinds)


@pytest.mark.parametrize("error", NO_ROOM, ids=["by its type", "in words"])
def test_no_task_is_fair_as_memory_runs_out(error: Exception) -> None:
    """The output does not depend on the second input, which a mixture of two draws would show."""
    pairs: set[tuple[float, float]] = set()

    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pairs.add((x[0].item(), y[0].item()))
        if len({x for x, _ in pairs}) < len(pairs):
            raise error
        return x + 1

    def two(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [torch.randn(COUNT), torch.randn(COUNT)]

    with pytest.raises(type(error)):
        list(unfair_ways(Problem(two, call), ("nominal",), 1))
