"""Are the Gluon kernels right on a Hopper GPU, at the edges of their tiles and with every plan?"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gpuperf.kernels import _flash as flash
from gpuperf.kernels import _flash_hopper as forward
from gpuperf.kernels import _flash_hopper_backward as backward
from gpuperf.kernels import _matmul_hopper as matmul
from gpuperf.kernels._flash import Mask
from gpuperf.kernels._flash_hopper_schedule import schedule, work_of
from gpuperf.kernels._gluon import gl, processors_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        gl is None or not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9,
        reason="needs a Hopper GPU",
    ),
]
ALIGNED = ("no mask", "lower right", "upper left")
# batch, query heads, heads that share keys, queries, keys
SHAPES = (
    (1, 1, 1, 1, 1),
    (2, 4, 2, 257, 257),
    (1, 4, 4, 300, 77),
    (1, 2, 1, 77, 300),
    (1, 20, 4, 1024, 1024),
)
OTHERS = [(64, plan) for plan in forward.PLANS[64]] + [(128, forward.Plan(64, 2, 4))]
Tensors = dict[str, torch.Tensor]


def drawn(shape: tuple[int, ...], d: int, dtype: torch.dtype) -> Tensors:
    b, h, gqa, nq, nk = shape
    generator = torch.Generator("cuda").manual_seed(5)
    sizes = {"q": (b, h, nq, d), "k": (b, h // gqa, nk, d), "v": (b, h // gqa, nk, d)}
    sizes["do"] = sizes["q"]
    return {
        name: torch.randn(size, generator=generator, device="cuda").to(dtype)
        for name, size in sizes.items()
    }


def mask_of(align: str, given: Tensors) -> Mask:
    nq, nk, d = given["q"].shape[2], given["k"].shape[2], given["q"].shape[3]
    return Mask(align != "no mask", nk - nq if align == "lower right" else 0, d**-0.5)


def exact(given: Tensors, mask: Mask) -> Tensors:
    """In float64, by the formulas of the gradients; a query without a key gives 0."""
    q, k, v, do = (given[name].double() for name in ("q", "k", "v", "do"))
    group = q.shape[1] // k.shape[1]
    keys, values = (t.repeat_interleave(group, 1) for t in (k, v))
    scores = q @ keys.transpose(-1, -2) * mask.scale
    slopes = 1.0
    if mask.cap:
        tangents = torch.tanh(scores / mask.cap)
        scores, slopes = mask.cap * tangents, 1 - tangents.square()
    i, j = (torch.arange(t.shape[2], device="cuda") for t in (q, k))
    if mask.band:
        begins, ends = mask.band.key_begins[:, None], mask.band.key_ends[:, None]
        scores = scores.masked_fill((j < begins) | (j >= ends), -math.inf)
    elif mask.causal:
        scores = scores.masked_fill(j > i[:, None] + mask.offset, -math.inf)
    shares = torch.softmax(scores, -1).nan_to_num(0.0)
    lse = torch.logsumexp(scores, -1) / math.log(2)
    o = shares @ values
    dscores = do @ values.transpose(-1, -2) - (o * do).sum(-1, keepdim=True)
    dscores = shares * slopes * dscores * mask.scale

    def of_keys(x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(1, (-1, group)).sum(2)

    return {
        "o": o,
        "lse": lse.masked_fill(lse.isinf(), math.inf),
        "dq": dscores @ keys,
        "dk": of_keys(dscores.transpose(-1, -2) @ q),
        "dv": of_keys(shares.transpose(-1, -2) @ do),
    }


def assert_close(got: Tensors, want: Tensors, unit: float) -> None:
    for name, value in got.items():
        right = want[name]
        most = right[right.isfinite()].abs().max().item() if right.isfinite().any() else 1.0
        atol = 4 * unit * max(most, 0.1)
        torch.testing.assert_close(
            value.double(), right, rtol=4 * unit, atol=atol, msg=lambda text, n=name: f"{n}: {text}"
        )


@pytest.mark.parametrize("align", ALIGNED)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_and_its_gradients_are_those_of_float64(
    shape: tuple[int, ...], d: int, align: str, dtype: torch.dtype
) -> None:
    given = drawn(shape, d, dtype)
    mask, q, k, v = mask_of(align, given), given["q"], given["k"], given["v"]
    o, lse = forward.forward(q, k, v, mask)
    got = {"o": o, "lse": lse}
    if d < 256:
        gradients = backward.backward(q, k, v, o, given["do"], lse, mask)
        got |= dict(zip(("dq", "dk", "dv"), gradients, strict=True))
    assert_close(got, exact(given, mask), torch.finfo(dtype).eps)


def band_at(align: str, n_q: int, n_k: int) -> flash.Band:
    """A window, documents, or ranges drawn at random, some empty."""
    i = torch.arange(n_q, device="cuda")
    begins, ends = (i + n_k - n_q - 150).clamp(0, n_k), (i + n_k - n_q + 1).clamp(0, n_k)
    if align == "documents":
        starts = torch.tensor([0, n_q // 7, n_q // 2, n_q // 2 + 1, max(n_q, n_k)], device="cuda")
        document = torch.searchsorted(starts, i, right=True)
        begins, ends = (starts[document - n].clamp(max=n_k) for n in (1, 0))
    if align == "any":
        generator = torch.Generator().manual_seed(n_q + n_k)
        drawn = [torch.randint(0, n_k + 1, (n_q,), generator=generator) for _ in range(2)]
        begins, ends = (values.sort().values.cuda() for values in drawn)
    return flash.band_of(begins, ends, n_k)


@pytest.mark.parametrize("cap", [0.0, 3.0])
@pytest.mark.parametrize("align", ["causal", "window", "documents", "any"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("language", ["Triton", "Gluon"])
def test_bands_and_caps_are_those_of_float64(
    language: str, shape: tuple[int, ...], d: int, align: str, cap: float
) -> None:
    given = drawn(shape, d, torch.bfloat16)
    mask = mask_of("lower right", given)._replace(cap=cap)
    if align != "causal":
        mask = mask._replace(band=band_at(align, *shape[3:5]))
    q, k, v, do = (given[name] for name in ("q", "k", "v", "do"))
    if language == "Triton":
        o, lse = flash.forward(q, k, v, mask, flash.FORWARD[0])
    else:
        o, lse = forward.forward(q, k, v, mask)
    got = {"o": o, "lse": lse}
    if language == "Triton":
        rest = (q, k, v, do, lse, flash.row_sums(o, do), mask)
        (dq,) = flash.backward("q", *rest, flash.tiles("q", q)[0])
        dk, dv = flash.backward("kv", *rest, flash.tiles("kv", q)[0])
        got |= {"dq": dq, "dk": dk, "dv": dv}
    elif d < 256:
        gradients = backward.backward(q, k, v, o, do, lse, mask)
        got |= dict(zip(("dq", "dk", "dv"), gradients, strict=True))
    assert_close(got, exact(given, mask), torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize(("d", "plan"), OTHERS, ids=str)
def test_every_plan_of_the_forward_is_right(d: int, plan: Any) -> None:
    for shape in SHAPES[1:]:
        given = drawn(shape, d, torch.bfloat16)
        mask = mask_of("lower right", given)
        o, lse = forward.forward(given["q"], given["k"], given["v"], mask, plan)
        assert_close({"o": o, "lse": lse}, exact(given, mask), torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize("align", ["no mask", "lower right", "window", "documents"])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_programs_compute_several_tiles(d: int, align: str) -> None:
    """384 tiles of 128 rows, about three for each multiprocessor."""
    shape = (4, 16, 2, 700, 700)
    given = drawn(shape, d, torch.bfloat16)
    mask = mask_of(align, given)
    if align in ("window", "documents"):
        band = band_at(align, 700, 700)
        mask = mask._replace(band=band, spans=flash.spans_of(*band[:2]))
    q, k, v = (given[name] for name in ("q", "k", "v"))
    o, lse = forward.forward(q, k, v, mask)
    got = {"o": o, "lse": lse}
    if d < 256:
        gradients = backward.backward(q, k, v, o, given["do"], lse, mask)
        got |= dict(zip(("dq", "dk", "dv"), gradients, strict=True))
    assert_close(got, exact(given, mask), torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize("align", ["no mask", "lower right", "documents"])
@pytest.mark.parametrize("keys", [100, 300])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_a_tile_may_begin_beside_the_end_of_another(d: int, keys: int, align: str) -> None:
    """256 or 384 tiles of one to five blocks of keys."""
    given = drawn((8, 16, 16, 300, keys), d, torch.bfloat16)
    mask = mask_of(align, given)._replace(cap=3.0 if align == "lower right" else 0.0)
    if align == "documents":
        mask = mask._replace(band=band_at(align, 300, keys))
    o, lse = forward.forward(given["q"], given["k"], given["v"], mask, forward.PLANS[d][0])
    assert_close({"o": o, "lse": lse}, exact(given, mask), torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize(("queries", "keys", "cap"), [(1000, 300, 0.0), (1024, 100, 3.0)])
def test_some_tiles_may_have_no_rows_for_the_last_warpgroup(
    queries: int, keys: int, cap: float
) -> None:
    given = drawn((8, 16, 4, queries, keys), 64, torch.bfloat16)
    mask, (q, k, v) = mask_of("no mask", given)._replace(cap=cap), (given[n] for n in "qkv")
    plan = forward.PLANS[64][0]
    work = work_of(mask, q, k)
    _programs, blocks, tall, _time = schedule(work, 3, plan.keys, processors_of(q.device))
    assert 0 < tall < blocks
    o, lse = forward.forward(q, k, v, mask, plan)
    assert_close({"o": o, "lse": lse}, exact(given, mask), torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize("layout", ["b n h d", "with gaps"])
def test_tensors_may_have_other_strides(layout: str) -> None:
    given = drawn((2, 4, 2, 200, 200), 64, torch.bfloat16)
    mask = mask_of("lower right", given)
    want = exact(given, mask)
    if layout == "b n h d":
        given = {n: t.transpose(1, 2).contiguous().transpose(1, 2) for n, t in given.items()}
    else:
        given = {n: torch.cat([t, t], -1)[..., :64] for n, t in given.items()}
    q, k, v = (given[name] for name in ("q", "k", "v"))
    o, lse = forward.forward(q, k, v, mask)
    gradients = backward.backward(q, k, v, o, given["do"], lse, mask)
    got = {"o": o, **dict(zip(("dq", "dk", "dv"), gradients, strict=True))}
    assert_close(got, want, torch.finfo(torch.bfloat16).eps)


def test_all_but_dq_is_the_same_in_every_run() -> None:
    given = drawn((2, 16, 2, 1000, 1000), 128, torch.bfloat16)
    mask, q, k, v = mask_of("lower right", given), given["q"], given["k"], given["v"]
    runs = []
    for _ in range(10):
        o, lse = forward.forward(q, k, v, mask)
        runs.append((o, lse, *backward.backward(q, k, v, o, given["do"], lse, mask)[1:]))
    for other in runs[1:]:
        assert all(torch.equal(x, y) for x, y in zip(runs[0], other, strict=True))


@pytest.mark.parametrize(
    ("cap", "dtype"), [(0.0, torch.bfloat16), (0.0, torch.float16), (3.0, torch.float16)]
)
@pytest.mark.parametrize("d", [64, 128])
def test_large_scores_and_caps_in_fp16_are_those_of_float64(
    d: int, cap: float, dtype: torch.dtype
) -> None:
    given = drawn(SHAPES[1], d, dtype)
    if not cap:  # scores of up to some 200
        given |= {name: given[name] * 6 for name in ("q", "k")}
    mask = mask_of("lower right", given)._replace(cap=cap)
    q, k, v, do = (given[name] for name in ("q", "k", "v", "do"))
    o, lse = forward.forward(q, k, v, mask)
    gradients = backward.backward(q, k, v, o, do, lse, mask)
    got = {"o": o, "lse": lse, **dict(zip(("dq", "dk", "dv"), gradients, strict=True))}
    assert_close(got, exact(given, mask), torch.finfo(dtype).eps)


@pytest.mark.parametrize("tile", matmul.TILES, ids=str)
@pytest.mark.parametrize("size", [(1, 8, 8), (100, 200, 40), (513, 776, 1000), (2048, 3072, 1024)])
@pytest.mark.parametrize("splits", [1, 3])
def test_a_product_is_that_of_float64(tile: Any, size: tuple[int, int, int], splits: int) -> None:
    m, n, k = size
    if not matmul.fits(tile, splits):
        pytest.skip("the sums of a part of k do not fit shared memory")
    a, b = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (k, n)))
    want = a.double() @ b.double()
    got = matmul.multiply_by(a, b, tile, splits)().double()
    torch.testing.assert_close(got, want, rtol=2**-7, atol=2**-9 * k**0.5)


@pytest.mark.parametrize("tile", matmul.FP8_TILES, ids=str)
@pytest.mark.parametrize("size", [(1, 16, 16), (100, 208, 48), (513, 784, 1008), (640, 512, 16384)])
@pytest.mark.parametrize("splits", [1, 3])
def test_a_product_in_fp8_is_that_of_float64(
    tile: Any, size: tuple[int, int, int], splits: int
) -> None:
    """Sums of 16,384 products would be off by more if tensor cores kept them."""
    m, n, k = size
    if not matmul.fits(tile, splits, 1):
        pytest.skip("the sums of a part of k do not fit shared memory")
    a, b = (torch.randn(s, device="cuda").to(torch.float8_e4m3fn) for s in ((m, k), (n, k)))
    want = a.double() @ b.double().t()
    got = matmul.multiply_by(a, b.t(), tile, splits)().double()
    torch.testing.assert_close(got, want, rtol=2**-7, atol=2**-9 * k**0.5)
