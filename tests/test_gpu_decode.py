"""Is decode attention right on a GPU, in every tile, at every split, and beyond 2³¹ elements?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpuperf.kernels import _split_kv as split_kv
from gpuperf.kernels import decode, kv_append

from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Point

OutOfResources = pytest.importorskip("triton.runtime.errors").OutOfResources
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

POINT = {"batch": 3, "heads": 32, "gqa": 4, "kv": 5003, "page": 16, "head_dim": 128, "queries": 1}


def drawn(layout: str, dtype: str = "bf16", **axes: int) -> tuple[Point, Any]:
    point = Point({**POINT, "layout": layout, "dtype": dtype, **axes})
    return point, decode.make_inputs(point, bind_make(torch.device("cuda"), 1))


def assert_right(ours: torch.Tensor, exact: torch.Tensor, share: float = 0.02) -> None:
    """The largest error is a small share of the rms of the result."""
    assert (ours.double() - exact).abs().max() <= share * exact.square().mean().sqrt()


@pytest.mark.parametrize("tile", split_kv.TILES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize(("d", "queries"), [(64, 1), (128, 8), (256, 3)])
def test_every_tile_is_right_at_any_number_of_splits(
    tile: Any, layout: str, d: int, queries: int
) -> None:
    point, inputs = drawn(layout, head_dim=d, queries=queries)
    exact = decode.reference(inputs, point)
    q, k, v = (inputs[name] for name in "qkv")
    for splits in (1, 2, 7, 200):
        call = split_kv.decode_split(q, k, v, inputs.get("table"), point.kv, splits, tile)
        try:
            ours = call()
        except OutOfResources:  # which tuning leaves out
            assert d * tile["BN"] * tile["num_stages"] > 2**16
            pytest.skip("the tile does not fit in shared memory")
        assert_right(ours, exact)
        first = ours.clone()
        for _ in range(20):  # another order of programs changes nothing
            assert torch.equal(call(), first)


def test_fp32_is_not_rounded_to_tf32() -> None:
    point, inputs = drawn("paged", "fp32", queries=2)
    ours = decode.decode_triton(inputs, point, {"splits": 0})()
    assert_right(ours, decode.reference(inputs, point), 2e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("queries", [1, 4])
def test_torch_s_kernels_agree(queries: int) -> None:
    point, inputs = drawn("contiguous", kv=4096, queries=queries)
    exact = decode.reference(inputs, point)
    for make in (decode.sdpa, decode.flex):
        assert_right(decode.build_of(make)(inputs, point, {})(), exact)


def test_a_cache_may_have_more_elements_than_32_bits_count() -> None:
    point, inputs = drawn("paged", batch=34, kv=65536)
    assert inputs["k"].numel() > 2**31
    last = torch.tensor([33], device="cuda")
    exact = decode.reference(decode.narrow(inputs, last), point)
    assert_right(decode.decode_triton(inputs, point, {"splits": 0})()[33:], exact)


@pytest.mark.parametrize("layout", ["contiguous", "paged"])
def test_new_tokens_are_appended_beyond_32_bits_as_torch_does(layout: str) -> None:
    axes = {"batch": 34, "kv_heads": 8, "kv": 65536, "head_dim": 128, "page": 16, "tokens": 3}
    point = Point({**axes, "layout": layout, "dtype": "bf16"})
    inputs = dict(kv_append.make_inputs(point, bind_make(torch.device("cuda"), 1)))
    inputs["v"] = torch.zeros_like(inputs["k"])
    inputs["k"] = torch.zeros_like(inputs["k"])
    kv_append.append_triton(inputs, point, {})()
    block, place = kv_append.places_of(inputs, point)
    for cache, new in ((inputs["k"], inputs["new_k"]), (inputs["v"], inputs["new_v"])):
        assert torch.equal(cache.transpose(1, 2)[block, place], new)
        assert int(torch.count_nonzero(cache)) == int(torch.count_nonzero(new))
