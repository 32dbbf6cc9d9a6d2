"""Is our flash attention right at the edges of its tiles, in every layout, and in every tile?"""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from gpuperf.kernels import _flash as flash
from gpuperf.kernels import _flash_backward as kernels
from gpuperf.kernels._flash import LOG2_E, Band, Mask

from gpuperf.jit import INTERPRETED

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of the interpreter
interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs Triton, and no GPU")

SMALL = {"BM": 16, "BN": 16, "num_warps": 4, "num_stages": 1}
WHOLE = {"BM": 32, "BN": 32, "num_warps": 4, "num_stages": 1}
LARGE = {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 1}
# batch, query heads, heads that share keys, queries, keys, head dim
SHAPES = (
    (1, 1, 1, 1, 1, 16),
    (2, 2, 1, 33, 33, 16),
    (1, 2, 2, 17, 50, 16),
    (1, 3, 3, 50, 17, 32),
    (2, 2, 2, 32, 48, 16),
    (1, 4, 2, 7, 5, 64),
    (1, 1, 1, 40, 20, 128),
)
SHORT = (1, 1, 1, 70, 9, 16)
ALIGNED = ("no mask", "lower right", "upper left")

Tensors = dict[str, torch.Tensor]


def drawn(
    b: int, h: int, gqa: int, n_q: int, n_k: int, d: int, dtype: torch.dtype = torch.float32
) -> Tensors:
    generator = torch.Generator().manual_seed(5)
    shapes = {"q": (b, h, n_q, d), "k": (b, h // gqa, n_k, d), "v": (b, h // gqa, n_k, d)}
    shapes["do"] = shapes["q"]
    return {name: torch.randn(s, generator=generator).to(dtype) for name, s in shapes.items()}


def mask_of(align: str, given: Tensors) -> Mask:
    n_q, n_k = given["q"].shape[2], given["k"].shape[2]
    offset = n_k - n_q if align == "lower right" else 0
    return Mask(align != "no mask", offset, given["q"].shape[3] ** -0.5)


def ours(given: Tensors, mask: Mask, default: Any = SMALL, **tiles: Any) -> Tensors:
    q, k, v, do = (given[name] for name in ("q", "k", "v", "do"))
    o, lse = flash.forward(q, k, v, mask, tiles.get("forward", default))
    rest = (q, k, v, do, lse, flash.row_sums(o, do), mask)
    dk, dv = flash.backward("kv", *rest, tiles.get("kv", default))
    (dq,) = flash.backward("q", *rest, tiles.get("q", default))
    return {"o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


def exact(given: Tensors, mask: Mask) -> Tensors:
    """In float64, by torch's autograd."""
    q, k, v = (given[name].double().requires_grad_() for name in ("q", "k", "v"))
    keys, values = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = q @ keys.transpose(-1, -2) * mask.scale
    if mask.cap:
        scores = mask.cap * torch.tanh(scores / mask.cap)
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    seen = (j <= i + mask.offset) | (not mask.causal)
    if mask.band:
        seen = (j >= mask.band.key_begins[:, None]) & (j < mask.band.key_ends[:, None])
    # A row without a key gets a finite row instead, so that autograd meets no NaN, and then 0.
    blind = ~seen.any(1, keepdim=True)
    scores = scores.masked_fill(~(seen | blind), -math.inf)
    o = (torch.softmax(scores, -1) @ values).masked_fill(blind, 0.0)
    o.backward(given["do"].double())
    lse = torch.logsumexp(scores, -1).masked_fill(blind[:, 0], math.inf) * LOG2_E
    grads = {f"d{name}": t.grad for name, t in (("q", q), ("k", k), ("v", v)) if t.grad is not None}
    return {"o": o.detach(), "lse": lse.detach(), **grads}


def assert_right(given: Tensors, mask: Mask, got: Tensors) -> None:
    want = exact(given, mask)
    assert got.keys() == want.keys()
    assert_close(given, got, want)


def assert_close(given: Tensors, got: Tensors, want: Tensors) -> None:
    """Each tensor of *got* is that of *want*."""
    unit = torch.finfo(given["q"].dtype).eps
    for name in got:
        right = want[name]
        if name != "lse":
            assert got[name].dtype == given["q"].dtype, name
        # Roundings are of the largest addends, which are as large as the largest elements here.
        most = right[right.isfinite()].abs().max().item() if right.isfinite().any() else 1.0
        torch.testing.assert_close(
            got[name].double(),
            right,
            rtol=8 * unit,
            atol=8 * unit * most + 1e-6,
            msg=lambda text, name=name: f"{name}: {text}",
        )


@interpreted
@pytest.mark.parametrize("align", ALIGNED)
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_gradients_are_those_of_float64(shape: tuple[int, ...], align: str) -> None:
    given = drawn(*shape)
    mask = mask_of(align, given)
    assert_right(given, mask, ours(given, mask))


@interpreted
@pytest.mark.parametrize("align", ALIGNED)
def test_in_fp16_the_error_is_a_few_roundings(align: str) -> None:
    given = drawn(1, 2, 2, 33, 47, 32, torch.float16)
    mask = mask_of(align, given)
    assert_right(given, mask, ours(given, mask))


@interpreted
@pytest.mark.parametrize("offset", [-40, -33, -20, -1, 3, 60])
def test_any_offset_of_the_mask_is_taken(offset: int) -> None:
    given = drawn(1, 1, 1, 33, 40, 16)
    mask = Mask(True, offset, 0.25)
    assert_right(given, mask, ours(given, mask))


def band_at(align: str, n_q: int, n_k: int) -> Band:
    """A window, documents, two keys for each query, or ranges drawn at random, some empty."""
    i = torch.arange(n_q)
    begins, ends = (i + n_k - n_q - 10).clamp(0, n_k), (i + n_k - n_q + 1).clamp(0, n_k)
    if align == "documents":
        of = torch.bucketize(i, torch.tensor([3, 19, 20]), right=True)
        begins = torch.tensor([0, 3, 19, 20])[of].clamp(max=n_k)
        ends = torch.tensor([3, 19, 20, n_k])[of].clamp(max=n_k)
    if align == "two keys":
        begins = i * (n_k - 1) // n_q
        ends = begins + 2
    if align == "any":
        generator = torch.Generator().manual_seed(n_q + n_k)
        drawn = [torch.randint(0, n_k + 1, (n_q,), generator=generator) for _ in range(2)]
        begins, ends = (values.sort().values for values in drawn)
    return flash.band_of(begins, ends, n_k)


BANDS = ("window", "documents", "two keys", "any")


@pytest.mark.parametrize("align", BANDS)
def test_a_band_names_the_queries_of_each_key_as_well(align: str) -> None:
    band = band_at(align, 33, 40)
    j, i = torch.arange(40), torch.arange(33)
    seen = (j >= band.key_begins[:, None]) & (j < band.key_ends[:, None])
    back = (i >= band.query_begins[:, None]) & (i < band.query_ends[:, None])
    assert torch.equal(seen.T, back)


@interpreted
@pytest.mark.parametrize("align", BANDS)
@pytest.mark.parametrize(
    "shape", [(1, 2, 2, 33, 50, 16), (2, 1, 1, 48, 48, 32), (1, 1, 1, 70, 9, 16)]
)
def test_bands_of_keys_are_those_of_float64(shape: tuple[int, ...], align: str) -> None:
    given = drawn(*shape)
    mask = Mask(False, 0, 0.25, band_at(align, *shape[3:5]))
    for tile in (SMALL, LARGE, {**SMALL, "BM": 32}, {**SMALL, "BN": 32}):
        assert_right(given, mask, ours(given, mask, tile))


@interpreted
@pytest.mark.parametrize("cap", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("align", ["no mask", "lower right", "window"])
def test_capped_scores_are_those_of_float64(align: str, cap: float) -> None:
    given = drawn(1, 2, 2, 33, 40, 16)
    mask = mask_of(align, given)._replace(cap=cap)
    if align == "window":
        mask = mask._replace(band=band_at(align, 33, 40))
    assert_right(given, mask, ours(given, mask))


@interpreted
@pytest.mark.parametrize("part", ["forward", "kv", "q"])
def test_keys_far_from_a_window_are_not_read(part: str) -> None:
    """A NaN would reach every query whose block of keys has it."""
    given = drawn(1, 1, 1, 64, 64, 16)
    band = band_at("window", 64, 64)
    mask = Mask(False, 0, 0.25, band)
    want = ours(given, mask)
    far = {name: tensor.clone() for name, tensor in given.items()}
    if part == "kv":
        far["q"][:, :, 32:], far["do"][:, :, 32:] = math.nan, math.nan
        got = ours(far, mask)
        for name in ("dk", "dv"):
            assert torch.equal(got[name][:, :, :16], want[name][:, :, :16])
        return
    far["k"][:, :, :32], far["v"][:, :, :32] = math.nan, math.nan
    got, name = ours(far, mask), "o" if part == "forward" else "dq"
    assert torch.equal(got[name][:, :, 48:], want[name][:, :, 48:])


@interpreted
def test_a_query_that_sees_nothing_gives_0_and_moves_nothing() -> None:
    given = drawn(1, 2, 1, 50, 17, 16)
    mask = mask_of("lower right", given)
    got = ours(given, mask)
    blind = -mask.offset
    assert not got["o"][:, :, :blind].any()
    assert not got["dq"][:, :, :blind].any()
    assert got["lse"][:, :, :blind].isposinf().all()
    other = {**given, "do": given["do"].clone()}
    other["do"][:, :, :blind] = 1e4
    assert torch.equal(ours(other, mask)["dv"], got["dv"])


@interpreted
@pytest.mark.parametrize("align", ALIGNED)
def test_logits_of_a_hundred_do_not_overflow(align: str) -> None:
    given = drawn(1, 1, 1, 33, 40, 16)
    for name in ("q", "k"):
        given[name] *= math.sqrt(100)
    mask = mask_of(align, given)
    scores = given["q"] @ given["k"].transpose(-1, -2) * mask.scale
    assert 100 < scores.abs().max() < 1000
    want, got = exact(given, mask), ours(given, mask)
    for name in ("o", "lse", "dv"):
        torch.testing.assert_close(got[name].double(), want[name], rtol=1e-3, atol=1e-3)
    # Of logits this large a rounding in fp32 moves a share by 100·2⁻²³, and q and k are 10.
    for name in ("dq", "dk"):
        torch.testing.assert_close(got[name].double(), want[name], rtol=1e-2, atol=1e-2)


@functools.cache
def solved(shape: tuple[int, ...], align: str) -> tuple[Tensors, Mask, Tensors, Tensors]:
    """Inputs, their mask, the exact result, and what a backward takes of the forward."""
    given = drawn(*shape)
    mask = mask_of(align, given)
    o, lse = flash.forward(given["q"], given["k"], given["v"], mask, LARGE)
    return given, mask, exact(given, mask), {"lse": lse, "sums": flash.row_sums(o, given["do"])}


OF_TILES = ((1, 1, 1, 140, 150, 16), (1, 2, 2, 9, 3, 16))


@interpreted
@pytest.mark.parametrize("align", ALIGNED[:2])
@pytest.mark.parametrize("tile", flash.FORWARD, ids=str)
def test_every_tile_of_the_forward_is_right(tile: dict[str, int], align: str) -> None:
    for shape in OF_TILES:
        given, mask, want, _ = solved(shape, align)
        o, lse = flash.forward(given["q"], given["k"], given["v"], mask, tile)
        assert_close(given, {"o": o, "lse": lse}, want)


@interpreted
@pytest.mark.parametrize("align", ALIGNED[:2])
@pytest.mark.parametrize(
    ("part", "tile"),
    [
        (part, tile)
        for part, known in (("kv", flash.BACKWARD_KV), ("q", flash.BACKWARD_Q))
        for tile in known
    ],
    ids=str,
)
def test_every_tile_of_the_backward_is_right(part: str, tile: dict[str, int], align: str) -> None:
    for shape in OF_TILES:
        given, mask, want, rows = solved(shape, align)
        tensors = (*(given[name] for name in ("q", "k", "v", "do")), rows["lse"], rows["sums"])
        gradients = flash.backward(part, *tensors, mask, tile)
        names = ("dk", "dv") if part == "kv" else ("dq",)
        assert_close(given, dict(zip(names, gradients, strict=True)), want)


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values, otherwise in memory."""
    b, h, n, d = tensor.shape
    if layout == "b n h d":
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "b h d n":
        return tensor.transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "with gaps":
        room = torch.full((b, h, n, 2 * d), torch.nan, dtype=tensor.dtype)
        room[..., :d] = tensor
        return room[..., :d]
    room = torch.full((tensor.numel() + 1,), torch.nan, dtype=tensor.dtype)  # "at odd addresses"
    room[1:] = tensor.flatten()
    return room[1:].view(tensor.shape)


@interpreted
@pytest.mark.parametrize("which", [("q",), ("v",), ("do",), ("q", "k", "v", "do")], ids=str)
@pytest.mark.parametrize("layout", ["b n h d", "b h d n", "with gaps", "at odd addresses"])
def test_tensors_may_lie_in_memory_as_they_like(layout: str, which: tuple[str, ...]) -> None:
    given = drawn(2, 2, 2, 17, 20, 16)
    other = {name: laid_out(t, layout) if name in which else t for name, t in given.items()}
    mask = mask_of("lower right", given)
    assert_right(given, mask, ours(other, mask, WHOLE))


@interpreted
def test_keys_may_be_one_head_that_is_expanded() -> None:
    given = drawn(2, 2, 1, 17, 20, 16)
    given |= {name: given[name][:, :1].expand(-1, 2, -1, -1) for name in ("k", "v")}
    mask = mask_of("upper left", given)
    assert_right(given, mask, ours(given, mask))


@interpreted
def test_what_lies_as_the_kernels_want_it_is_not_copied() -> None:
    q = torch.zeros(2, 4, 17, 16)
    for layout in ("b h n d", "b n h d"):
        given = laid_out(q, layout) if layout == "b n h d" else q
        assert flash._plain(given)[0] is given
        assert torch.empty_like(given).stride() == given.stride()
    odd = laid_out(q, "at odd addresses")
    assert odd.data_ptr() % 16
    assert not flash._plain(odd)[0].data_ptr() % 16


def test_fp32_is_not_tuned_among_tiles_that_take_a_minute_to_compile() -> None:
    known = {"forward": flash.FORWARD, "kv": flash.BACKWARD_KV, "q": flash.BACKWARD_Q}
    for part, every in known.items():
        assert flash.tiles(part, torch.zeros(1, dtype=torch.bfloat16)) == every
        (only,) = flash.tiles(part, torch.zeros(1))
        assert only in every
        assert only["BM"] * only["BN"] <= 2048


@interpreted
def test_the_gluon_backward_begins_with_padded_sums_and_ends_with_a_scaled_gradient() -> None:
    given = drawn(2, 3, 1, 70, 70, 16)
    o, do, lse = given["q"], given["do"], torch.rand(2, 3, 70)
    norm, parts = torch.full((6 * 128,), -1.0), torch.full((6 * 128, 16), -1.0).bfloat16()
    total = torch.full(o.shape, 7.0)
    shape = (70, 128, 3, *o.stride()[:3])
    given_to = (o, do, lse, norm, parts, total, 8.0, *shape)
    kernels.prepare_kernel[(2, 6)](*given_to, CAPPED=True, D=16, PARTS=16, BM=64)
    assert torch.equal(total, torch.zeros_like(o))
    parts, norm = parts.view(2, 3, 128, 16).double(), norm.view(2, 3, 128)
    close = functools.partial(torch.testing.assert_close, rtol=2**-22, atol=2**-22)
    close(parts[..., :70, :3].sum(-1), 8 * lse.double())
    close(parts[..., :70, 3:6].sum(-1), (o * do).sum(-1).double(), atol=1e-5)
    assert not parts[..., 6:].any() and not parts[..., 70:, 3:].any()
    assert torch.equal(norm[..., :70], lse)
    assert norm[..., 70:].isinf().all()
    hidden = parts[..., 70:, :3].sum(-1)
    assert (hidden > 1e38).all() and hidden.isfinite().all()
    dq = torch.empty_like(o)
    rest = (70, 3, *o.stride()[:3])
    kernels.finish_kernel[(2, 6)](o, dq, 0.25, *rest, D=16, BM=64)
    torch.testing.assert_close(dq, o / 4)
