"""Is decode attention right for shared heads, several queries, pages filled in part, and splits?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpuperf.kernels import _split_kv as split_kv
from gpuperf.kernels import decode, kv_append
from gpuperf.kernels._cache import draw_table, pages_of

from gpuperf.errors import CannotMeasure
from gpuperf.jit import INTERPRETED
from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of the interpreter
interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs Triton, and no GPU")

TILE = {"BN": 16, "JOINED": 0, "num_warps": 4, "num_stages": 1}
POINT = {"batch": 2, "heads": 4, "gqa": 1, "kv": 37, "queries": 1, "head_dim": 16, "page": 16}


def point_of(layout: str, **axes: int) -> Point:
    return Point({**POINT, "layout": layout, "dtype": "fp32", **axes})


def drawn(point: Point) -> Any:
    return decode.make_inputs(point, bind_make(torch.device("cpu"), 1))


def by_splits(point: Point, splits: int, joined: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Our result of a second call with *splits*, and the reference."""
    inputs = drawn(point)
    q, k, v = (inputs[name] for name in "qkv")
    tile = {**TILE, "JOINED": joined}
    call = split_kv.decode_split(q, k, v, inputs.get("table"), point.kv, splits, tile)
    call().fill_(float("nan"))
    return call().double(), decode.reference(inputs, point)


@interpreted
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize(("gqa", "queries"), [(1, 1), (4, 1), (4, 3)])
@pytest.mark.parametrize(("splits", "joined"), [(1, 0), (1, 1), (3, 0), (3, 1)])
def test_splits_add_up_to_the_whole(
    layout: str, gqa: int, queries: int, splits: int, joined: int
) -> None:
    ours, exact = by_splits(point_of(layout, gqa=gqa, queries=queries), splits, joined)
    torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-6)


@interpreted
@pytest.mark.parametrize("joined", [0, 1])
@pytest.mark.parametrize("kv", [17, 33])
def test_a_split_of_which_a_query_sees_no_key_adds_nothing(kv: int, joined: int) -> None:
    """Of 8 queries the first sees kv − 7 keys, fewer than begin the last split of 16."""
    ours, exact = by_splits(point_of("paged", batch=1, heads=1, kv=kv, queries=8), 9, joined)
    torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-6)


@interpreted
def test_large_scores_do_not_overflow() -> None:
    point = point_of("paged")
    inputs = drawn(point)
    inputs["k"].mul_(1e3)
    arguments = (inputs["q"], inputs["k"], inputs["v"], inputs["table"], point.kv, 3, TILE)
    ours = split_kv.decode_split(*arguments)()
    torch.testing.assert_close(ours.double(), decode.reference(inputs, point), rtol=1e-3, atol=1e-3)


def test_the_reference_is_torch_s_attention_in_float64() -> None:
    point = point_of("contiguous", gqa=2, queries=3)
    inputs = {name: value.double() for name, value in drawn(point).items()}
    j, i = torch.arange(point.kv), torch.arange(point.queries)[:, None]
    exact = torch.nn.functional.scaled_dot_product_attention(
        *(inputs[name] for name in "qkv"),
        attn_mask=j <= i + point.kv - point.queries,
        enable_gqa=True,
    )
    torch.testing.assert_close(decode.reference(inputs, point), exact)


def test_a_paged_cache_gives_what_the_same_tokens_give_contiguous() -> None:
    paged, plain = point_of("paged", gqa=4, queries=2), point_of("contiguous", gqa=4, queries=2)
    inputs = drawn(paged)
    k, v = decode.contiguous(inputs, paged)
    assert k.shape == (2, 1, 37, 16)
    for sequence, position in ((0, 0), (0, 36), (1, 20)):
        page = inputs["table"][sequence, position // 16]
        assert torch.equal(k[sequence, :, position], inputs["k"][page, :, position % 16])
    exact = decode.reference({"q": inputs["q"], "k": k, "v": v}, plain)
    torch.testing.assert_close(decode.reference(inputs, paged), exact)


@pytest.mark.parametrize("data", ["randn", "zeros"])
def test_each_page_belongs_to_one_sequence(data: Any) -> None:
    point = point_of("paged", batch=5)
    table = draw_table(point, bind_make(torch.device("cpu"), 3, data))
    assert table.shape == (5, pages_of(point))
    assert table.flatten().sort().values.tolist() == list(range(15))


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 64])
def test_new_tokens_have_slots_of_their_own_in_pages_of_their_sequence(batch: int) -> None:
    point = Point({"batch": batch, "tokens": 20, "kv": 37, "page": 16, "layout": "paged"})
    slots = kv_append.draw_slots(point, bind_make(torch.device("cpu"), 3))
    assert len(slots.unique()) == batch * 20
    assert int(slots.min()) >= 0
    assert int(slots.max()) < batch * 3 * 16
    owners = [{int(slot) // 16 for slot in row} for row in slots]
    assert sum(map(len, owners)) == len(set().union(*owners))


def test_the_flops_of_one_query_are_four_for_each_key_and_element() -> None:
    point = point_of("contiguous", gqa=4)
    assert decode.cost(point).flops[0].count == 4 * 2 * 4 * 16 * 37


def test_two_queries_see_one_key_less_than_twice_the_keys() -> None:
    point = point_of("contiguous", queries=2)
    assert decode.cost(point).flops[0].count == 4 * 2 * 4 * 16 * (37 + 36)


@pytest.mark.parametrize(
    ("sequences", "keys", "splits"),
    [(8, 1024, 7), (8, 65536, 29), (512, 65536, 1), (264, 65536, 1), (1, 100, 1), (133, 65536, 7)],
)
def test_splits_fill_an_h200_and_no_split_is_tiny(sequences: int, keys: int, splits: int) -> None:
    """132 SMs run 264 programs at a time, of which 8 · 29 are 88 %, and 133 · 7 in 4 waves too."""
    assert split_kv.choose_splits(sequences, keys, 132) == splits


@pytest.mark.parametrize(("axes", "words"), [({"gqa": 3}, "4 heads"), ({"queries": 38}, "37")])
def test_sizes_that_do_not_fit_are_refused_in_one_sentence(axes: Any, words: str) -> None:
    with pytest.raises(CannotMeasure, match=words):
        drawn(point_of("contiguous", **axes))
