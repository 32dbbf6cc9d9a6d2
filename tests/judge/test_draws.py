"""Do changed values keep what a task promises of its inputs?"""

from __future__ import annotations

import pytest
import torch

from gpuperf.judge.inside.contents import inputs_of
from gpuperf.judge.inside.draws import CHANGES, NOMINAL, SCALED, change, change_one
from gpuperf.judge.inside.examine import kinds_of, twins_of
from gpuperf.judge.inside.problem import Problem
from gpuperf.judge.plan import Plan
from gpuperf.judge.protocol import Contents


@pytest.mark.parametrize("kind", CHANGES)
def test_zeros_stay_and_symmetric_matrices_are_scaled_alone(kind: str) -> None:
    torch.manual_seed(1)
    lower, plain = torch.randn(3, 40, 40).tril(), torch.randn(30, 50)
    symmetric = plain[:, :30] @ plain[:, :30].T + torch.eye(30)
    changed = [lower.clone(), symmetric.clone(), plain.clone()]
    change(changed, kind, 2)
    assert torch.equal(changed[0] != 0, lower != 0)
    torch.linalg.cholesky(changed[1])
    assert torch.equal(changed[1], symmetric) is (kind not in SCALED)
    assert not any(map(torch.equal, (changed[0], changed[2]), (lower, plain)))


@pytest.mark.parametrize("far", [True, False])
def test_a_twin_differs_in_one_element_and_keeps_the_form(far: bool) -> None:
    torch.manual_seed(1)
    lower, plain = torch.randn(3, 40, 40).tril(), torch.rand(30, 50)
    symmetric, bounds = plain[:, :30] + plain[:, :30].T, torch.linspace(0, 1, 20)
    for seed in range(20):
        before = [lower, plain, symmetric, bounds]
        changed = [tensor.clone() for tensor in before]
        change_one(changed, seed, far)
        differ = [int((a != b).sum()) for a, b in zip(changed, before, strict=True)]
        assert differ == [1, 1, 0, 0]
        assert torch.equal(changed[0] != 0, lower != 0)
        if not far:
            assert changed[1].min() >= 0 and changed[1].max() <= 1


def test_integers_stay() -> None:
    """They may be lengths in order, masks, or the different experts of a token."""
    change_one([labels := torch.tensor([3, 1, 2, 2]), flags := torch.tensor([True, False])], 1)
    assert labels.tolist() == [3, 1, 2, 2] and flags.tolist() == [True, False]


def logarithms(seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.rand(20, 30) + 0.01]


def test_a_task_that_allows_no_shift_has_twins_of_its_own_values() -> None:
    problem = Problem(logarithms, torch.log, lambda x: torch.log(x.double()))
    kinds, _ = kinds_of(problem, 1)
    assert "offset" not in kinds and twins_of(problem, kinds, 1) == "near"
    _, (twin,) = inputs_of(problem, Contents(0, 5, "twin", (3, NOMINAL), far=False))
    _, (other,) = inputs_of(problem, Contents(0, 3, NOMINAL))
    assert int((twin != other).sum()) == 1 and twin.min() > 0


def test_a_task_that_allows_no_other_values_has_no_twins() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        if (x.sort()[0] != torch.arange(len(x))).any():
            raise ValueError("no permutation")
        return x.argsort().float()

    problem = Problem(lambda seed: [torch.randperm(50).float()], call)
    kinds, _ = kinds_of(problem, 1)
    assert "scale" not in kinds and twins_of(problem, kinds, 1) == ""
    assert drawn_twins("", kinds) == []


def drawn_twins(twins: str, kinds: tuple[str, ...]) -> list[Contents]:
    rounds = Plan(1, 16, kinds, 1e-3, twins=twins).rounds()
    return [c for each in rounds for c in each.contents if c.twin is not None]


def test_near_twins_are_those_of_nominal_values() -> None:
    near, far = (drawn_twins(twins, (NOMINAL, "scale")) for twins in ("near", "far"))
    assert near and {c.twin[1] for c in near if c.twin} == {NOMINAL}
    assert not any(c.far for c in near)
    assert {c.twin[1] for c in far if c.twin} == {NOMINAL, "scale"} and all(c.far for c in far)
