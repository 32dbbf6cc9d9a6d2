"""Is a pattern of dropout random? Judged on patterns that are, and on patterns that are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.dropout import refuse_regular, refuse_repeated
from gpuperf.model.workload import Dropout

SHAPE = (2, 3, 40, 50)
Change = Callable[[torch.Tensor], torch.Tensor]


def random(share: float, seed: int, shape: tuple[int, ...] = SHAPE) -> Dropout:
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(shape, generator=generator) < share
    possible = torch.rand(shape[-2:], generator=generator) < 0.7
    return Dropout(kept & possible, possible, share)


@pytest.mark.parametrize("share", [0.9, 0.5])
def test_random_patterns_are_never_refused(share: float) -> None:
    before = random(share, 1000)
    for seed in range(200):
        pattern = random(share, seed)
        refuse_regular(pattern)
        refuse_repeated(before, pattern)
        before = pattern


def test_a_probability_of_eight_bits_is_no_fault() -> None:
    """FlashAttention keeps 230 of 256 for a dropout of 0.1."""
    shape = (4, 4, 256, 256)
    pattern = random(230 / 256, 1, shape)
    refuse_regular(Dropout(pattern.kept, pattern.possible, 0.9))
    with pytest.raises(WrongResult, match="of all elements, where dropout keeps 90 %"):
        refuse_regular(Dropout(random(0.88, 1, shape).kept, pattern.possible, 0.9))


def flipped(axis: int) -> Change:
    """Each element is that of its neighbour, or its opposite: half of them are kept."""
    return lambda kept: kept.index_select(axis, torch.arange(kept.shape[axis]) // 2 * 2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda kept: kept.fill_(True), "keeps 100 % of all elements"),
        (lambda kept: kept.fill_(False), "keeps 0 % of all elements"),
        (lambda kept: kept[:1].expand(SHAPE), "neighbours on axis 0"),
        (flipped(1), "neighbours on axis 1"),
        (flipped(2), "neighbours on axis 2"),
        (flipped(3), "neighbours on axis 3"),
        (
            lambda kept: torch.cat([kept[:, :, :20], kept[:, :, :20]], 2),
            "same elements of two rows",
        ),
        (lambda kept: kept & (torch.arange(50) != 7), "keeps 0 % of a column"),
    ],
)
def test_a_pattern_that_is_not_random_is_refused(change: Change, reason: str) -> None:
    everything = torch.ones(SHAPE[-2:], dtype=torch.bool)
    pattern = torch.rand(SHAPE, generator=torch.Generator().manual_seed(0)) < 0.5
    with pytest.raises(WrongResult, match=reason):
        refuse_regular(Dropout(change(pattern), everything, 0.5))


def test_the_same_pattern_in_two_calls_is_refused() -> None:
    pattern = random(0.9, 1)
    with pytest.raises(WrongResult, match="the same elements in two calls"):
        refuse_repeated(pattern, pattern)
