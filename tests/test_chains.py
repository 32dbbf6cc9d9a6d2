"""Which elementwise operators could be one kernel, and what would that save?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from gpuperf.analysis.chains import chains_of
from gpuperf.model.aten import Call, Tensor
from gpuperf.model.program import Seen

N = 1024
SIZE = 4 * N  # bytes of a vector in fp32


class Step:
    """Calls one after the other, each on storages by number."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self._line = itertools.count(1)

    def call(
        self, name: str, inputs: Sequence[int], output: int, shape: tuple[int, ...] = (N,)
    ) -> None:
        tensors = tuple((Tensor(shape, "fp32", (), storage, 0),) for storage in inputs)
        made = (Tensor(shape, "fp32", (), output, 0),)
        where = f"a.py:{next(self._line)}"
        self.seen.append(Seen(Call(f"aten::{name}", tensors, ("",) * len(tensors), made), where))


def test_a_chain_reads_what_comes_from_outside_and_writes_its_end() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("add", [3, 4], 5)
    step.call("relu", [5], 6)
    (chain,) = chains_of(step.seen)
    assert chain.operators == ("mul", "add", "relu")
    assert chain.where == "a.py:1"
    assert (chain.bytes, chain.fused_bytes) == (8 * SIZE, 4 * SIZE)


def test_what_another_operator_takes_later_is_still_written() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("relu", [3], 4)
    step.call("mm", [3, 9], 5, (32, 32))
    (chain,) = chains_of(step.seen)
    assert (chain.bytes, chain.fused_bytes) == (5 * SIZE, 4 * SIZE)


def test_an_operator_between_ends_a_chain() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("sum", [3], 7)
    step.call("relu", [3], 4)
    assert chains_of(step.seen) == ()


def test_a_view_between_does_not() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("view", [3], 3)
    step.call("relu", [3], 4)
    assert [chain.operators for chain in chains_of(step.seen)] == [("mul", "relu")]


def test_neighbours_that_share_nothing_are_no_chain() -> None:
    step = Step()
    step.call("mul", [1, 2], 3)
    step.call("mul", [4, 5], 6)
    assert chains_of(step.seen) == ()


def test_in_place_operators_read_and_write_once() -> None:
    step = Step()
    step.call("mul_", [1, 2], 1)
    step.call("add_", [1, 3], 1)
    (chain,) = chains_of(step.seen)
    assert (chain.bytes, chain.fused_bytes) == (6 * SIZE, 4 * SIZE)


def test_chains_alike_are_counted() -> None:
    step = Step()
    for first in (10, 20, 30):
        step.call("mul", [first, 1], first + 1)
        step.call("relu", [first + 1], first + 2)
        step.call("mm", [first + 2, 9], first + 3, (32, 32))
    alike = [Seen(one.call, "a.py:1") for one in step.seen]
    (chain,) = chains_of(alike)
    assert chain.count == 3
    assert chain.bytes == 3 * 5 * SIZE


@pytest.mark.parametrize("storage", [0])
def test_of_unknown_storages_nothing_is_said(storage: int) -> None:
    step = Step()
    step.call("mul", [storage, storage], storage)
    step.call("relu", [storage], storage)
    assert chains_of(step.seen) == ()
