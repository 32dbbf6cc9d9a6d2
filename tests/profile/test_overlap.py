"""Are pieces of one storage told apart, and parts found in their whole?"""

from __future__ import annotations

import itertools

from hypothesis import assume, given
from hypothesis import strategies as st

from gpuperf.model.aten import Tensor
from gpuperf.profile.overlap import TensorSet, overlap


def piece(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, storage: int = 1
) -> Tensor:
    return Tensor(shape, "bf16", strides, storage, offset)


# Of a projection of 16 tokens: 32 heads of q, 8 of k, 8 of v, each of 4.
WHOLE = piece((16, 192), (192, 1), 0)
Q = piece((16, 32, 4), (192, 4, 1), 0)
K = piece((16, 8, 4), (192, 4, 1), 128)
V = piece((16, 8, 4), (192, 4, 1), 160)


def test_what_is_cut_from_one_projection_has_nothing_in_common() -> None:
    for one, other in itertools.permutations((Q, K, V), 2):
        assert not overlap(one, other)
    for part in (Q, K, V):
        assert overlap(part, WHOLE)
        assert overlap(part, part)


def test_in_another_order_it_is_the_same_and_as_another_dtype_it_may_be() -> None:
    turned = piece((192, 16), (1, 192), 0)
    flat = piece((16 * 192,), (1,), 0)
    assert overlap(WHOLE, turned)
    assert overlap(WHOLE, flat)
    assert overlap(WHOLE, Tensor((10,), "fp32", (), 1, 100))
    assert not overlap(WHOLE, Tensor((10,), "fp32", (), 1, 16 * 192))


def test_other_storages_never_meet_and_unknown_places_always_do() -> None:
    assert not overlap(WHOLE, piece((16, 192), (192, 1), 0, storage=2))
    assert overlap(Tensor((4,), "bf16", (), 1), Tensor((4,), "bf16", (), 1, 100))


def test_a_whole_takes_the_place_of_its_parts() -> None:
    held = TensorSet([Q, K, Q])
    assert held.bytes == 2 * 16 * (128 + 32)
    assert not held.covers(V)
    assert not held.covers(WHOLE)
    held.add(WHOLE)
    assert list(held) == [WHOLE]
    assert held.covers(V)
    assert not held.without(TensorSet([WHOLE]))


axes = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12)), max_size=3)


def elements(tensor: Tensor) -> set[int]:
    steps = [[at * i for i in range(n)] for n, at in zip(tensor.shape, tensor.strides, strict=True)]
    return {(tensor.offset or 0) + sum(one) for one in itertools.product(*steps)}


@given(axes, axes, st.integers(0, 30), st.integers(0, 30))
def test_nothing_that_is_shared_is_overlooked(
    one: list[tuple[int, int]], other: list[tuple[int, int]], first: int, second: int
) -> None:
    a, b = (
        piece(tuple(n for n, _ in some), tuple(at for _, at in some), offset)
        for some, offset in ((one, first), (other, second))
    )
    assert a.place is not None
    assert b.place is not None
    assume(a.place[3] != b.place[3])  # of one form at two places: pieces, by definition
    assert overlap(a, b) == overlap(b, a)
    assert overlap(a, b) or not elements(a) & elements(b)
