"""Attention as a workload: what is counted, what is refused, and do its ways agree?"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attention_points import BY_NAME, CPU, inputs_of, of
from gpuperf.kernels import _attention_reference
from gpuperf.kernels import _masks as masks
from gpuperf.kernels._modes import by_mode, of_mode
from gpuperf.kernels.attention import ATTENTION
from hypothesis import example, given
from hypothesis import strategies as st

from gpuperf.errors import CannotMeasure
from gpuperf.jit import INTERPRETED
from gpuperf.measure.checks import compare
from gpuperf.measure.deviation import WrongResult
from gpuperf.model.cost import Work
from gpuperf.model.workload import Point

interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs Triton, and no GPU")


def tensors(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def assert_right(point: Point, inputs: dict[str, torch.Tensor], output: Any) -> None:
    compare(ATTENTION, point, inputs, output, "fp32", lambda count, n: torch.arange(count) % n)


def work_of(name: str, point: Point) -> Work:
    work = BY_NAME[name].work
    assert work is not None
    return work(point)


MASKS = [("no", "lower-right"), ("yes", "lower-right"), ("yes", "upper-left")]
of_every_mask = pytest.mark.parametrize(("causal", "align"), MASKS)


def counted(seq: int, kv: int, causal: str, align: str) -> int:
    """Pair by pair."""
    shift = kv - seq if align == "lower-right" else 0
    return sum(causal == "no" or j <= i + shift for i in range(seq) for j in range(kv))


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(MASKS))
@example(1, 40, ("yes", "upper-left"))
@example(40, 1, ("yes", "lower-right"))
def test_the_pairs_that_a_mask_shows_are_counted_exactly(
    seq: int, kv: int, mask: tuple[str, str]
) -> None:
    point = of(seq=seq, kv=kv, causal=mask[0], align=mask[1])
    assert masks.unmasked_pairs(point) == counted(seq, kv, *mask)


@given(
    st.integers(1, 30), st.integers(1, 30), st.sampled_from(MASKS), st.integers(0, 40), st.data()
)
def test_windows_and_documents_are_counted_exactly(
    seq: int, kv: int, mask: tuple[str, str], window: int, data: st.DataObject
) -> None:
    documents = data.draw(st.integers(1, seq))
    if documents > 1:
        kv = seq
    shape = {"seq": seq, "kv": kv, "causal": mask[0], "align": mask[1]}
    point = of(**shape, window=window, documents=documents)
    starts = masks.document_starts(point)
    assert len(starts) == documents + 1
    assert starts == tuple(sorted(set(starts))) or seq < 3 * documents  # else some may be empty
    shift = kv - seq if mask[1] == "lower-right" else 0
    seen = torch.zeros(seq, kv, dtype=torch.bool)
    for i in range(seq):
        for j in range(kv):
            near = not window or abs(j - i - shift) < window
            before = mask[0] == "no" or j <= i + shift
            same = documents == 1 or all((i < start) == (j < start) for start in starts)
            seen[i, j] = near and before and same
    assert masks.unmasked_pairs(point) == seen.sum()
    assert masks.seen_keys(point) == seen.any(0).sum()
    assert masks.has_blind_queries(point) == (not seen.any(1).all())
    assert masks.most_keys(point) >= seen.sum(1).max()
    assert torch.equal(masks.admitted_pairs({"q": torch.zeros(1)}, point), seen)
    assert torch.equal(masks.admitted_keys({"q": torch.zeros(1)}, point), seen.sum(1).double())


def test_a_window_of_a_long_sequence_is_counted_at_once() -> None:
    most = 10**15
    point = of(seq=most, causal="yes", window=4096)
    assert masks.unmasked_pairs(point) == 4096 * most - 4096 * 4095 // 2
    # A query that decodes reads the keys of its window alone.
    decode = {"seq": 1, "kv": 2**16, "causal": "yes", "dtype": "bf16"}
    all_keys, near = (ATTENTION.cost(of(**decode, window=w)).dram_bytes for w in (0, 2**12))
    q = 2 * 4 * 16 * 2
    assert (all_keys - 2 * q) == 16 * (near - 2 * q)


def test_a_causal_mask_shows_half_and_half_of_the_diagonal() -> None:
    assert masks.unmasked_pairs(of(seq=4096, causal="yes")) == 4096 * 4097 // 2
    most = 10**15  # counted before it is refused, and at once
    assert masks.unmasked_pairs(of(seq=most, causal="yes")) == most * (most + 1) // 2


@pytest.mark.parametrize("mode", ["fwd", "bwd"])
def test_a_key_that_is_left_out_is_caught(mode: str) -> None:
    point = of(seq=64, dtype="bf16", mode=mode)
    inputs = inputs_of(point)
    fewer = {name: value[:, :, 1:] if name in "kv" else value for name, value in inputs.items()}
    output = ATTENTION.reference(fewer, Point(dict(point) | {"kv": 63}))
    if mode == "bwd":
        dq, *of_keys = output
        output = (dq, *(F.pad(gradient, (0, 0, 1, 0)) for gradient in of_keys))
    found = [tensor.bfloat16() for tensor in tensors(output)]
    with pytest.raises(WrongResult):
        assert_right(point, inputs, found if mode == "bwd" else found[0])


def test_papers_count_half_of_all_pairs_under_a_causal_mask() -> None:
    def flops(**given: Any) -> int:
        return ATTENTION.cost(of(seq=1024, **given)).flop_count

    whole, exact = flops(), flops(causal="yes")
    assert flops(causal="yes", causal_flops="half") == whole // 2 < exact
    assert exact - whole // 2 == 4 * 2 * 4 * 16 * (1024 // 2)
    assert flops(causal_flops="half") == whole
    other = of(seq=64, kv=2, causal="yes")
    half = of(seq=64, kv=2, causal="yes", causal_flops="half")
    assert ATTENTION.cost(half).flops == ATTENTION.cost(other).flops
    one = of(seq=1, causal="yes", causal_flops="half")
    assert ATTENTION.cost(one).flop_count > 0
    # What a kernel does is no convention.
    half = of(seq=64, causal="yes", causal_flops="half")
    exact_work = work_of("triton_flash", of(seq=64, causal="yes"))
    assert work_of("triton_flash", half).flops == exact_work.flops


def test_flops_are_4_b_h_n2_d_forward_and_twice_that_backward() -> None:
    # FlashAttention-1's own table counts 66.6 GFLOP here, wrong by its author's word (#741).
    shape = {"batch": 64, "heads": 16, "seq": 1024, "head_dim": 64, "dtype": "bf16"}
    flops = {mode: ATTENTION.cost(of(**shape, mode=mode)).flop_count for mode in ("fwd", "bwd")}
    assert flops["fwd"] == 4 * 64 * 16 * 1024**2 * 64 == 274_877_906_944
    assert flops["bwd"] == 2 * flops["fwd"]
    # The graph of 3 such passes; FlashAttention computes the scores once more.
    assert round(ATTENTION.cost(of(**shape, mode="fwd+bwd")).flop_count / 1e9, 1) == 824.6


def test_keys_that_heads_share_save_bytes_and_no_flops() -> None:
    one, shared = of(heads=8, dtype="bf16"), of(heads=8, gqa=4, dtype="bf16")
    q = 2 * 8 * 9 * 16 * 2
    assert ATTENTION.cost(one).flops == ATTENTION.cost(shared).flops
    assert ATTENTION.cost(one).dram_bytes == 4 * q
    assert ATTENTION.cost(shared).dram_bytes == 2 * q + 2 * q // 4
    # Decoding: one query; as many FLOPs a byte of keys and values as heads share them.
    decode = of(heads=8, gqa=8, seq=1, kv=2**16, dtype="bf16")
    assert ATTENTION.cost(decode).intensity == pytest.approx(8, rel=1e-3)


@pytest.mark.parametrize(
    ("mode", "scores", "heads"), [("fwd", 6, 4), ("bwd", 9, 8), ("fwd+bwd", 15, 12)]
)
def test_eager_moves_the_scores_again_and_again(mode: str, scores: int, heads: int) -> None:
    """facts/attention.md: 4u + 4v and 7u + 8v, and 2u each for the scale and the mask."""
    u, v = 2 * 4 * 9 * 9 * 4, 2 * 4 * 9 * 16 * 4
    halves = 1 + (mode == "fwd+bwd")
    assert work_of("eager", of(mode=mode)).dram_bytes == scores * u + heads * v
    masked = work_of("eager", of(mode=mode, causal="yes"))
    assert masked.dram_bytes == (scores + 2 * halves) * u + heads * v
    assert masked.flop_count == {"fwd": 4, "bwd": 8, "fwd+bwd": 12}[mode] * 2 * 4 * 16 * 9**2
    # Where a query sees no key, its NaN is made 0.
    blind = work_of("eager", of(mode=mode, causal="yes", kv=8))
    open_ = work_of("eager", of(mode=mode, kv=8))
    assert blind.dram_bytes - open_.dram_bytes == 4 * halves * u * 8 // 9


def test_eager_repeats_keys_that_heads_share() -> None:
    k = 2 * 2 * 9 * 16 * 4
    for mode in ("fwd", "bwd"):
        once, shared = work_of("eager", of(mode=mode)), work_of("eager", of(mode=mode, gqa=2))
        # k and v, or their gradients, of all heads and of those that are stored.
        assert shared.dram_bytes - once.dram_bytes == 2 * (2 * k + k)


def test_flash_moves_no_scores() -> None:
    v, lse = 2 * 4 * 9 * 16 * 4, 2 * 4 * 9 * 4
    forward = work_of("triton_flash", of())
    assert forward.dram_bytes == 4 * v + lse
    assert forward.flops == ATTENTION.cost(of()).flops
    # o ∘ do summed; then q, k, v, do, log-sum-exp and sums twice; three gradients.
    backward = work_of("triton_flash", of(mode="bwd"))
    assert backward.dram_bytes == (2 * v + lse) + 2 * (4 * v + 2 * lse) + 3 * v
    assert 2 * backward.flop_count == 7 * forward.flop_count
    both = work_of("triton_flash", of(mode="fwd+bwd"))
    assert both.dram_bytes == forward.dram_bytes + backward.dram_bytes


def test_eager_makes_of_a_mask_one_pass_over_the_scores() -> None:
    """`masked_fill` would make two: a copy, then the filling."""
    point = of(causal="yes", kv=8, mode="fwd+bwd")
    call = BY_NAME["eager"].build(inputs_of(point), point, {})
    with torch.profiler.profile() as profile:
        call()
    names = [event.name for event in profile.events() or []]
    assert "aten::where" in names
    assert not {"aten::masked_fill", "aten::nan_to_num", "aten::clone"} & set(names)


@of_every_mask
@pytest.mark.parametrize(("seq", "kv"), [(9, 9), (5, 12), (12, 5), (1, 7), (7, 1)])
def test_every_way_on_a_cpu_is_the_reference(seq: int, kv: int, causal: str, align: str) -> None:
    for mode, heads, gqa in (("fwd", 2, 1), ("fwd+bwd", 4, 2), ("bwd", 2, 2)):
        shape = {"batch": 1, "heads": heads, "seq": seq, "kv": kv, "gqa": gqa}
        point = of(**shape, causal=causal, align=align, mode=mode)
        try:
            inputs = inputs_of(point)
        except CannotMeasure:
            assert mode != "fwd"
            continue
        for name in ("eager", "sdpa_math", "triton_flash"):
            if BY_NAME[name].supports(point, CPU) is None:
                assert_right(point, inputs, BY_NAME[name].build(inputs, point, {})())


@pytest.mark.parametrize(
    "given",
    [
        {"window": 4},
        {"window": 4, "causal": "yes"},
        {"window": 3, "causal": "yes", "seq": 5, "kv": 12},
        {"documents": 3},
        {"documents": 3, "causal": "yes", "window": 4},
        {"softcap": 2},
        {"softcap": 1, "causal": "yes", "window": 5, "gqa": 2},
    ],
)
def test_windows_documents_and_caps_on_a_cpu_are_the_reference(given: dict[str, Any]) -> None:
    for mode in ("fwd", "bwd", "fwd+bwd"):
        point = of(**{"batch": 1, "seq": 33, **given}, mode=mode)
        inputs = inputs_of(point)
        for name in ("eager", "sdpa_math", "triton_flash"):
            if BY_NAME[name].supports(point, CPU) is None:
                assert_right(point, inputs, BY_NAME[name].build(inputs, point, {})())
        without = Point(dict(point) | {"window": 0, "softcap": 0, "documents": 1})
        with pytest.raises(WrongResult):
            assert_right(point, inputs, BY_NAME["eager"].build(inputs, without, {})())


def test_the_reference_of_a_cap_is_autograd_of_the_definition() -> None:
    point = of(gqa=2, softcap=1, window=4, documents=2, mode="fwd+bwd")
    inputs = inputs_of(point)
    q, k, v = (inputs[name].double().requires_grad_() for name in ("q", "k", "v"))
    keys, values = (t.repeat_interleave(2, 1) for t in (k, v))
    scores = torch.tanh(q @ keys.mT / 4)
    first, end = masks.document_starts(point)[1:]
    i = torch.arange(end)
    seen = ((i[:, None] - i).abs() < 4) & ((i[:, None] < first) == (i < first))
    o = torch.softmax(scores.masked_fill(~seen, -math.inf), -1) @ values
    want = (o, *torch.autograd.grad(o, (q, k, v), inputs["do"].double()))
    for got, right in zip(ATTENTION.reference(inputs, point), want, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-12, atol=1e-12)


def test_a_cap_is_two_more_passes_over_the_scores_of_eager_attention() -> None:
    u = 2 * 4 * 9 * 9 * 4
    for mode, scores in (("fwd", 4), ("bwd", 5), ("fwd+bwd", 9)):
        plain, capped = (work_of("eager", of(mode=mode, softcap=cap)) for cap in (0, 50))
        assert capped.dram_bytes - plain.dram_bytes == scores * u
        assert ATTENTION.cost(of(mode=mode, softcap=50)) == ATTENTION.cost(of(mode=mode))


def test_the_reference_in_chunks_is_autograd_of_the_definition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of which no implementation is a part."""
    for kv, align in ((7, "lower-right"), (13, "lower-right"), (13, "upper-left")):
        point = of(kv=kv, gqa=2, causal="yes", align=align, mode="fwd+bwd")
        inputs = inputs_of(point)
        whole = ATTENTION.reference(inputs, point)
        q, k, v = (inputs[name].double().requires_grad_() for name in ("q", "k", "v"))
        o = torch.zeros_like(q)
        shift = kv - 9 if align == "lower-right" else 0
        for b, h, i in ((b, h, i) for b in range(2) for h in range(4) for i in range(9)):
            seen = slice(0, max(0, i + 1 + shift))
            shares = torch.softmax(k[b, h // 2, seen] @ q[b, h, i] / 4, 0)
            o = o.index_put(tuple(map(torch.tensor, (b, h, i))), shares @ v[b, h // 2, seen])
        gradients = torch.autograd.grad(o, (q, k, v), inputs["do"].double())
        with monkeypatch.context() as patch:
            patch.setattr(_attention_reference, "LARGEST_CHUNK", 4 * kv)  # 18 queries by fours
            parts = ATTENTION.reference(inputs, point)
        for got, part, want in zip(whole, parts, (o, *gradients), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(part, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["eager", "sdpa_math", "triton_flash"])
def test_a_backward_alone_follows_its_inputs(name: str) -> None:
    point = of(batch=1, heads=2, mode="bwd", causal="yes", gqa=2)
    if reason := BY_NAME[name].supports(point, CPU):
        pytest.skip(reason)
    inputs = inputs_of(point)
    call = BY_NAME[name].build(inputs, point, {})
    first = [tensor.clone() for tensor in call()]
    for changed in ("q", "k", "v", "do"):
        inputs[changed].mul_(1.5)
        got = call()
        assert not torch.equal(got[0], first[0])
        assert_right(point, inputs, got)
    for again, before in zip(call(), got, strict=True):
        assert torch.equal(again, before)


def flash_by_hand(point: Point, inputs: dict[str, torch.Tensor], drop: float = 1.0) -> Any:
    """dq, dk and dv in fp32 by the formula of FlashAttention-2, with *drop* times its δ."""
    k, v = (inputs[name].repeat_interleave(point.gqa, 1) for name in "kv")
    q, do, scale = inputs["q"], inputs["do"], point.head_dim**-0.5
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    hidden = j > i + masks.offset_of(point)
    scores = (q @ k.mT * (scale * math.log2(math.e))).masked_fill(hidden, -math.inf)
    norm = scores.exp2().sum(-1, keepdim=True).log2()
    norm = torch.where(norm == -math.inf, math.inf, norm)
    shares = (scores - norm).exp2()
    sums = ((shares @ v) * do).sum(-1, keepdim=True)
    dscores = shares * (do @ v.mT - drop * sums)
    gradients = (dscores.mT @ q * scale, shares.mT @ do)
    shared = (t.unflatten(1, (-1, point.gqa)).sum(2) for t in gradients)
    return (dscores @ k * scale, *shared)


def test_gradients_that_cancel_for_a_query_of_one_key_are_held_to_their_addends() -> None:
    """dq of that query is 0: what is left are the roundings of two sums of the kernel."""
    point = of(heads=6, gqa=3, seq=33, kv=17, causal="yes", align="lower-right", mode="bwd")
    for seed in range(60):
        inputs = inputs_of(point, seed)
        assert_right(point, inputs, flash_by_hand(point, inputs))
    with pytest.raises(WrongResult):
        assert_right(point, inputs, flash_by_hand(point, inputs, 1 - 1e-4))
    one = flash_by_hand(point, inputs)
    one[0][:, :, 16] += 1e-4  # of that query alone, which no sum hides
    with pytest.raises(WrongResult):
        assert_right(point, inputs, one)


def test_a_forward_is_made_anew_only_after_a_change_and_never_held_twice() -> None:
    inputs = {"x": torch.ones(2), "dy": torch.ones(2)}
    alive: list[int] = []

    class Kept:
        def __init__(self) -> None:
            assert not alive, "the last forward is still held"
            alive.append(1)

        def __call__(self, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (gradient * 2,)

        def __del__(self) -> None:
            alive.pop()

    made = []

    def forward() -> tuple[torch.Tensor, Any]:
        made.append(1)
        return inputs["x"], Kept()

    call = by_mode("bwd", inputs, forward, lambda: None)
    for times, change in ((1, None), (1, None), (1, "dy"), (2, "x"), (2, None)):
        if change:
            inputs[change].add_(1)
        (got,) = call()
        assert torch.equal(got, 2 * inputs["dy"])
        assert len(made) == times
    assert [of_mode(mode, 2, 7) for mode in ("fwd", "bwd", "fwd+bwd")] == [2, 7, 9]


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"kv": 1}, True),
        ({"kv": 2}, False),
        ({"seq": 1}, False),  # of keys there are 9
        ({"seq": 1, "kv": 9, "causal": "yes"}, False),
        ({"seq": 1, "kv": 9, "causal": "yes", "align": "upper-left"}, True),
    ],
)
def test_gradients_that_are_0_whatever_is_computed_are_not_measured(
    given: dict[str, Any], refused: bool
) -> None:
    """Of one key the share is 1: what an implementation gives is its rounding errors."""
    given = {"kv": 9, **given}
    inputs_of(of(**given))
    point = of(**given, mode="bwd")
    if refused:
        with pytest.raises(CannotMeasure, match="no query attends to two keys"):
            inputs_of(point)
    else:
        inputs = inputs_of(point)
        assert_right(point, inputs, BY_NAME["eager"].build(inputs, point, {})())


@interpreted
def test_the_tiles_of_each_kernel_are_recorded() -> None:
    for mode, parts in (("fwd", {"forward"}), ("bwd", {"forward", "backward_kv", "backward_q"})):
        point = of(mode=mode)
        chosen = BY_NAME["triton_flash"].build(inputs_of(point), point, {}).chosen
        assert {name.rpartition("_BM")[0] for name in chosen if name.endswith("BM")} == parts
        assert all(isinstance(value, int) and math.log2(value) >= 0 for value in chosen.values())
