"""Attention with a mask tensor and with dropout: what is counted, observed and computed?"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_points import BY_NAME, inputs_of, of
from fake_bench import make_bench
from gpuperf.kernels.attention import ATTENTION

from gpuperf.measure.dropout import RandomCall
from gpuperf.model.workload import Point
from gpuperf.theory.attention import eager

# FlashAttention-1's own row: GPT-2 medium, of which one layer.
GPT2 = {"batch": 64, "heads": 16, "seq": 1024, "head_dim": 64, "dtype": "fp16"}


def bytes_of(**given: Any) -> int:
    work = BY_NAME["eager"].work
    assert work is not None
    return work(of(**GPT2, **given)).dram_bytes


def test_the_cost_reads_a_mask_once_for_all_heads_and_dropout_is_free() -> None:
    plain = ATTENTION.cost(of(**GPT2))
    for kind, size in (("additive", 2), ("boolean", 1)):
        masked = ATTENTION.cost(of(**GPT2, mask=kind, dropout="0.1"))
        assert masked.dram_bytes - plain.dram_bytes == size * 1024**2
        assert masked.flops == plain.flops


@pytest.mark.parametrize(
    ("given", "forward", "backward"),
    [
        ({"mask": "additive"}, 2.0, 0.0),  # the gradient of a sum is no kernel
        ({"mask": "boolean"}, 2.0, 2.0),
        ({"dropout": "0.1"}, 2.5, 2.5),  # of scores of two bytes, a byte a score is half of u
    ],
)
def test_eager_moves_scores_once_more_for_a_mask_and_for_dropout(
    given: dict[str, str], forward: float, backward: float
) -> None:
    u, mask = 2 * 64 * 16 * 1024**2, {"additive": 2, "boolean": 1}.get(given.get("mask", ""), 0)
    for mode, passes in (("fwd", forward), ("bwd", backward), ("fwd+bwd", forward + backward)):
        more = bytes_of(mode=mode, **given) - bytes_of(mode=mode)
        reads = {"fwd": forward > 0, "bwd": backward > 0, "fwd+bwd": (forward > 0) + (backward > 0)}
        assert more == passes * u + reads[mode] * mask * 1024**2


def test_the_bytes_of_the_forward_are_those_of_the_theory() -> None:
    more = frozenset({"scale", "mask", "dropout"})
    _, theory, _ = eager(1024, 64, 64 * 16, 2, more)
    of_mask = 2 * 1024**2  # which the theory leaves out
    assert bytes_of(mask="additive", dropout="0.1") == theory + of_mask


def test_a_softmax_of_a_mask_and_dropout_is_that_of_the_definition() -> None:
    """The reference is autograd's gradient of a formula with the same elements."""
    for mask in ("additive", "boolean"):
        point = of(kv=13, gqa=2, mask=mask, dropout="0.5", causal="yes", mode="fwd+bwd")
        inputs = inputs_of(point)
        kept = torch.rand(2, 4, 9, 13, generator=torch.Generator().manual_seed(3)) > 0.5
        got = ATTENTION.reference({**inputs, "kept": kept}, point)
        q, k, v = (inputs[name].double().requires_grad_() for name in "qkv")
        scores = torch.einsum("bgnid,bgjd->bgnij", q.unflatten(1, (2, 2)), k) / 4
        seen = torch.arange(13) <= torch.arange(9)[:, None] + 4
        if mask == "additive":
            scores = scores + inputs["mask"]
        else:
            seen = seen & inputs["mask"]
        shares = scores.masked_fill(~seen, -torch.inf).softmax(-1).flatten(1, 2) * kept * 2
        o = torch.einsum("bgnij,bgjd->bgnid", shares.unflatten(1, (2, 2)), v).flatten(1, 2)
        want = (o, *torch.autograd.grad(o, (q, k, v), inputs["do"].double()))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def observed(point: Point, seed: int) -> torch.Tensor:
    inputs, fresh = inputs_of(point), inputs_of(point, 1)
    observe, call = ATTENTION.dropout(point), BY_NAME["eager"].build(inputs, point, {})
    assert observe is not None
    device = make_bench().device.torch
    _, known = RandomCall(observe, device, [inputs], call).result(fresh, seed)
    kept: torch.Tensor = known["kept"]
    return kept


def test_the_forward_and_the_gradients_show_the_same_elements() -> None:
    """v is read in blocks of columns, do in blocks and one query head at a time."""
    shape = {"seq": 21, "kv": 25, "gqa": 2, "mask": "boolean", "dropout": "0.5"}
    forward, both, backward = (observed(of(**shape, mode=m), 5) for m in ("fwd", "fwd+bwd", "bwd"))
    assert torch.equal(forward, both)
    assert torch.equal(forward, backward)
    assert not torch.equal(forward, observed(of(**shape), 6))


def test_too_few_elements_are_refused() -> None:
    from gpuperf.errors import CannotMeasure

    with pytest.raises(CannotMeasure, match="too few to check which of them dropout keeps"):
        observed(of(batch=1, heads=2, seq=5, dropout="0.1"), 1)


def test_without_its_new_axes_a_point_is_as_it_was() -> None:
    """Cases of earlier runs lack them."""
    new = {"mask", "dropout", "window", "softcap", "documents"}
    assert {axis.name for axis in ATTENTION.axes if axis.optional} == new
    older = Point({name: value for name, value in of().items() if name not in new})
    assert ATTENTION.cost(older) == ATTENTION.cost(of())
    assert inputs_of(older).keys() == {"q", "k", "v"}
    assert ATTENTION.dropout(older) is None
