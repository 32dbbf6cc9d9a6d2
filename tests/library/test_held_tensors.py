"""Which tensors a callable uses, as far as its closure and arguments show, and on which GPU."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from gpuperf.measure.callables import MOST_ITEMS, gpu_of, tensors_held_by

X = torch.randn(256, 256)


def test_tensors_are_found_in_closures_arguments_and_globals() -> None:
    inner = torch.ones(3)

    def f(*tensors: torch.Tensor, scale: Any = 1) -> torch.Tensor:
        return inner + X.sum() * scale

    held = tensors_held_by(functools.partial(f, torch.ones(1), scale=torch.ones(2)))
    assert {name: value.numel() for name, value in held.items()} == {
        "argument 1": 1,
        "scale": 2,
        "inner": 3,
        "X": 65536,
    }
    assert list(tensors_held_by(lambda x=X, n=2: x * n)) == ["x"]
    assert tensors_held_by(torch.sin) == {}
    assert tensors_held_by(X.clone) == {"self": X}


def test_tensors_are_found_in_lists_and_dictionaries() -> None:
    lists = {"a": [torch.ones(1), (torch.ones(2), 5)], torch.float32: torch.ones(3)}
    held = tensors_held_by(lambda: lists)
    assert {name: value.numel() for name, value in held.items()} == {
        "lists['a'][0]": 1,
        "lists['a'][1][0]": 2,
        "lists[…]": 3,
    }
    deep: list[Any] = [torch.ones(1)]
    for _ in range(10):
        deep = [deep]
    assert tensors_held_by(lambda: deep) == {}


def test_of_many_items_the_first_ones_are_looked_at() -> None:
    looked = 0

    class Counted(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal looked
            for each in super().__iter__():
                looked += 1
                yield each

    long = Counted(Counted([0] * 2000) for _ in range(2000))
    assert tensors_held_by(lambda: long) == {}
    assert 2000 < looked <= MOST_ITEMS + len(long)


def test_tensors_that_have_no_memory_of_their_own_are_left_out() -> None:
    odd = [torch.eye(3).to_sparse(), torch.nn.parameter.UninitializedParameter()]
    assert tensors_held_by(lambda: odd) == {}
    assert tensors_held_by(torch.nn.LazyLinear(3)) == {}
    assert tensors_held_by(torch.nn.Linear(2, 2)) == {}


def test_the_gpu_is_that_of_the_tensors_if_they_are_on_one() -> None:
    with FakeTensorMode():
        x, y = (torch.empty(4, device=f"cuda:{index}") for index in (1, 2))
    assert gpu_of([x.clone]) == gpu_of([X.clone, lambda: x + 1]) == "cuda:1"
    assert gpu_of([x.clone, y.clone]) is None
    assert gpu_of([X.clone, lambda: None]) is None
