"""A training step of blocks: the FLOPs that are done again, and the bytes that are kept."""

from __future__ import annotations

import pytest
import torch
from gpuperf.kernels.checkpoint import CHECKPOINT, kept_elements
from torch.utils.flop_counter import FlopCounterMode

from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point

BY_NAME = {implementation.name: implementation for implementation in CHECKPOINT.implementations}
WIDTH, TOKENS, LAYERS, SEQ = 64, 130, 3, 65


def point_of(attention: str) -> Point:
    sizes = {"batch": 2, "depth": LAYERS, "heads": 4, "seq": SEQ, "head_dim": 16}
    return Point({**sizes, "attention": attention, "dtype": "fp32"})


def built(name: str, attention: str) -> tuple[Point, object]:
    point = point_of(attention)
    inputs = CHECKPOINT.inputs(point, bind_make(torch.device("cpu"), 1))
    return point, BY_NAME[name].build(inputs, point, {})


@pytest.mark.parametrize("name", BY_NAME)
def test_the_flops_of_the_work_are_those_that_torch_counts(name: str) -> None:
    point, call = built(name, "eager")
    work = BY_NAME[name].work
    assert work is not None
    assert callable(call)
    with FlopCounterMode(display=False) as counter:
        call()
    assert counter.get_total_flops() == work(point).flop_count


def test_a_full_checkpoint_does_two_thirds_of_the_forward_products_again() -> None:
    works = {name: BY_NAME[name].work for name in BY_NAME}
    counts = {name: work(point_of("sdpa")).flop_count for name, work in works.items() if work}
    attention = LAYERS * 4 * 2 * WIDTH * SEQ * (SEQ + 1) // 2
    products = LAYERS * 24 * TOKENS * WIDTH**2
    assert counts["full"] - counts["none"] == products * 2 // 3 + attention
    assert counts["selective"] - counts["none"] == attention
    model = CHECKPOINT.cost(point_of("sdpa")).flop_count
    assert model == 3 * (products + attention)
    assert counts["none"] - model == attention // 2  # flash attention computes the scores again


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", BY_NAME)
def test_the_bytes_kept_are_those_that_the_formula_counts(name: str, attention: str) -> None:
    point, call = built(name, attention)
    kept = call.readings()["kept_bytes"]  # type: ignore[attr-defined]
    expected = 4 * LAYERS * kept_elements(point, name) - 4 * TOKENS * WIDTH  # x is an input
    of_norms = 0 if name == "full" else 4 * LAYERS * 2 * 2 * TOKENS  # a mean and a scale a token
    masks = LAYERS * SEQ**2 if (name, attention) == ("none", "eager") else 0
    sums = 4 * LAYERS * 4 * TOKENS if (name, attention) == ("none", "sdpa") else 0
    assert kept == expected + of_norms + masks + sums


def test_each_way_computes_the_same_gradients() -> None:
    results = []
    for name in BY_NAME:
        _, call = built(name, "sdpa")
        assert callable(call)
        results.append(call())
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            torch.testing.assert_close(one, two)
