"""One transformer block: the rungs compute its formulas, and its cost is that of the theory."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from every_case import CPU
from fake_bench import CONTRACT, make_bench
from gpuperf.kernels._transformer_block import (
    PARAMETERS,
    PAST,
    WEIGHTS,
    Held,
    layer_of,
    reference,
    step,
    weight_step,
)
from gpuperf.kernels.block import BLOCK, PHASES, eager_attention
from torch.utils.flop_counter import FlopCounterMode

from gpuperf.errors import CannotMeasure
from gpuperf.measure.inputs import bind_make
from gpuperf.model.workload import Case, Point
from gpuperf.theory.transformer.model import Model
from gpuperf.theory.transformer.step import Formats, Roofs, Steps

LADDER = ("fp32", "bf16", "compile", "quantized")
BY_NAME = {implementation.name: implementation for implementation in BLOCK.implementations}


def point_of(phase: str, **sizes: int) -> Point:
    usual = {"batch": 3, "heads": 4, "gqa": 2, "seq": 37, "hidden": 80, "head_dim": 16}
    return Point({"phase": phase, **usual, **sizes, "dtype": "bf16"})


def inputs_of(point: Point) -> dict[str, torch.Tensor]:
    return dict(BLOCK.inputs(point, bind_make(torch.device("cpu"), 1)))


@pytest.mark.parametrize("phase", PHASES)
def test_the_block_in_float64_is_its_formulas(phase: str) -> None:
    """The rungs' function and the reference compute norms, RoPE and attention in different ways."""
    point = point_of(phase)
    inputs = {name: value.double() for name, value in inputs_of(point).items()}
    held = Held(inputs, point, torch.float64)
    layer = layer_of(point)
    if phase == "train":
        got = step(layer, inputs, held)()
    else:
        got = layer(inputs["x"], *held.parameters, *held.tables, *held.cache)
    for one, other in zip(got, reference(inputs, point), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_decode_step_is_the_last_token_of_a_prefill() -> None:
    prefill, decode = point_of("prefill"), point_of("decode")
    inputs = {name: value.double() for name, value in inputs_of(prefill).items()}
    y, k, v = reference(inputs, prefill)
    past = dict(zip(PAST, (k[:, :, :-1], v[:, :, :-1]), strict=True))
    last = {**inputs, "x": inputs["x"][:, -1:], **past}
    for one, whole in zip(
        reference(last, decode), (y[:, -1:], k[:, :, -1:], v[:, :, -1:]), strict=True
    ):
        torch.testing.assert_close(one, whole, rtol=1e-9, atol=1e-9)


def test_the_cache_is_copied_again_after_it_has_changed() -> None:
    point = point_of("decode")
    inputs = inputs_of(point)
    call = BY_NAME["fp32"].build(inputs, point, {})
    before = call()[0].clone()
    inputs["past_v"].neg_()
    assert not torch.equal(call()[0], before)
    inputs["past_v"].neg_()
    assert torch.equal(call()[0], before)


def test_weights_are_the_same_in_int8_and_in_bf16() -> None:
    inputs = inputs_of(point_of("decode"))
    for name in WEIGHTS:
        codes = inputs[name].double() / weight_step(inputs[name].shape[1])
        assert torch.equal(codes, codes.to(torch.int8).double())
        assert codes.unique().numel() > 100


@pytest.mark.parametrize("phase", PHASES)
def test_the_flops_are_those_that_torch_counts(phase: str) -> None:
    point = point_of(phase, gqa=1)
    inputs = inputs_of(point)
    with FlopCounterMode(display=False) as counter:
        reference(inputs, point)
    count = BLOCK.cost(point).flop_count
    if phase != "decode":  # the reference computes all pairs, and the cost counts the causal ones
        more = point.seq**2 - point.seq * (point.seq + 1) // 2
        count += (3 if phase == "train" else 1) * 4 * point.batch * 64 * more
    assert counter.get_total_flops() == count


def test_the_cost_is_that_of_one_layer_in_the_theory() -> None:
    model = Model("llama", 1, 4096, 32, 8, 128, 14336, 128256)
    steps = Steps(model, Formats(), Roofs(4.29e12, 800e12, 800e12))
    sizes = {"heads": 32, "gqa": 4, "hidden": 14336, "head_dim": 128}
    for phase, batch, seq in (("decode", 64, 1025), ("prefill", 1, 2048)):
        tokens = batch if phase == "decode" else seq
        linears = [steps.linear(linear, tokens) for linear in model.linears[:-1]]
        attention = (
            steps.decode_attention(batch, batch * (seq - 1))
            if phase == "decode"
            else steps.prefill_attention(tokens)
        )
        cost = BLOCK.cost(point_of(phase, batch=batch, seq=seq, **sizes))
        assert cost.flop_count == sum(flops for flops, _ in linears) + attention[0]
        streams = 2 * (2 * tokens * 4096 + 2 * 4096)  # x, y and the gains of the norms
        assert cost.dram_bytes == sum(moved for _, moved in linears) + attention[1] + streams


def test_a_rung_moves_fewer_bytes_than_the_one_before() -> None:
    for phase in PHASES:
        point = point_of(phase)
        works = {name: BY_NAME[name].work for name in LADDER}
        moved = [work(point).dram_bytes for work in works.values() if work]
        attention = sum(eager_attention(point)) * (3 if phase == "train" else 1)
        assert moved[0] == 2 * moved[1] + 4 * attention
        assert moved[1] > moved[2] > BLOCK.cost(point).dram_bytes
        weights = sum(inputs_of(point)[name].numel() for name in WEIGHTS)
        assert moved[2] - moved[3] == weights  # a byte each


@pytest.mark.parametrize(
    ("name", "phase"),
    [*((n, p) for n in ("fp32", "bf16") for p in PHASES), *(("quantized", p) for p in PHASES[:2])],
)
def test_a_rung_passes_every_check_of_the_bench(name: str, phase: str) -> None:
    contract = replace(CONTRACT, min_samples=2, budget_s=60.0)
    case = Case("block", name, point_of(phase), {})
    record = make_bench(facts=CPU.facts).measure(BLOCK, case, contract, "r", 0)
    assert (record.status, record.reason) == ("ok", "")


def test_the_codes_of_quantized_weights_follow_the_weights() -> None:
    point = point_of("decode")
    inputs = inputs_of(point)
    call = BY_NAME["quantized"].build(inputs, point, {})
    call()
    inputs["down"].zero_()
    inputs["out"].zero_()
    assert torch.equal(call()[0], inputs["x"])


@pytest.mark.parametrize("phase", PHASES[:2])
def test_the_triton_kernels_compute_the_block(phase: str) -> None:
    """In fp32, since Triton's interpreter does not multiply bf16."""
    point = point_of(phase)
    inputs = {name: value.float() for name, value in inputs_of(point).items()}
    call = BY_NAME["ours"].build(inputs, point, {})
    for result in call():
        result.fill_(torch.nan)
    for one, other in zip(call(), reference(inputs, point), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_quantized_weights_do_not_train() -> None:
    supports = BY_NAME["quantized"].supports
    assert supports(point_of("train"), CPU.facts) == "int8 weights are not trained"


@pytest.mark.parametrize(
    ("sizes", "hint"), [({"gqa": 3}, "has to divide"), ({"head_dim": 17}, "an even --head-dim")]
)
def test_a_block_that_cannot_be_is_refused(sizes: dict[str, int], hint: str) -> None:
    with pytest.raises(CannotMeasure) as refused:
        inputs_of(point_of("decode", **sizes))
    assert hint in str(refused.value.hint)


def test_the_gradients_are_of_x_and_all_parameters() -> None:
    point = point_of("train")
    inputs = inputs_of(point)
    results = BY_NAME["bf16"].build(inputs, point, {})()
    expected = ["x", "x", *PARAMETERS]
    assert [r.shape for r in results] == [inputs[name].shape for name in expected]
