"""Hold the sizes and the passes of transformers against hand counts and published figures."""

from __future__ import annotations

import pytest

from gpuperf.theory.transformer.model import BadSize, Experts, Model
from gpuperf.theory.transformer.step import Formats, Roofs, Steps, read_bytes

LLAMA = Model("llama", 32, 4096, 32, 8, 128, 14336, 128256)
STEPS = Steps(LLAMA, Formats(), Roofs(4.29e12, 800e12, 800e12))


def test_the_parameters_of_a_llama_are_the_published_ones() -> None:
    assert LLAMA.parameters == 8_030_261_248  # of the checkpoint's safetensors
    assert LLAMA.multiplied == 8_030_261_248 - 128256 * 4096 - 65 * 4096  # embedding, norms
    assert read_bytes(LLAMA, Formats()) == pytest.approx(15.01e9, rel=5e-4)


@pytest.mark.parametrize(
    ("batch", "step_ms", "rate_1k", "rate_8k"),
    [
        (1, 3.53, 283, 267),
        (8, 3.75, 2134, 1454),
        (32, 4.50, 7111, 2781),
        (64, 5.50, 11634, 3279),
        (128, 7.50, 17059, 3602),
        (256, 12.8, 19981, 3717),
        (512, 25.6, 19981, 3717),
    ],
)
def test_a_decode_step_takes_the_time_of_a_hand_count(
    batch: int, step_ms: float, rate_1k: float, rate_8k: float
) -> None:
    short, long = STEPS.decode_s(batch, batch * 1024), STEPS.decode_s(batch, batch * 8192)
    assert short * 1e3 == pytest.approx(step_ms, rel=0.002)
    assert (batch / short, batch / long) == pytest.approx((rate_1k, rate_8k), rel=0.002)


def test_a_prefill_is_its_flops_and_one_reading_of_the_head() -> None:
    head_s = 2 * 4096 * 128256 / 4.29e12
    assert STEPS.prefill_s(2048) - head_s == pytest.approx(37.1e-3, rel=0.001)
    assert STEPS.prefill_s(8192) - head_s == pytest.approx(164.9e-3, rel=0.001)


def test_a_pass_is_the_sum_of_its_parts() -> None:
    mixed = STEPS.pass_s(8, 8 * 1024, chunks=((512, 256),))
    linears = 2 * 520 * (LLAMA.multiplied - 128256 * 4096) / 800e12 + 2 * 4096 * 128256 / 4.29e12
    decode = 131072 * (8 * 1024 + 8) / 4.29e12
    chunk = 4 * 32 * 32 * 128 * (512 * 513 / 2 + 512 * 256) / 800e12
    assert mixed == pytest.approx(linears + decode + chunk, rel=1e-12)
    assert STEPS.pass_s(chunks=((512, 0),), logits=0) < STEPS.prefill_s(512)


def test_experts_are_read_as_often_as_they_are_chosen() -> None:
    model = Model("moe", 2, 64, 4, 2, 16, 128, 1000, experts=Experts(8, 2, 128))
    gate = next(linear for linear in model.linears if linear.name == "experts gate, up")
    assert gate.parameters == 2 * 8 * 64 * 256
    assert gate.weights_read(1) == pytest.approx(2 * 2 * 64 * 256)
    assert gate.weights_read(2) == pytest.approx(gate.parameters * (1 - 0.75**2))
    assert gate.weights_read(10**6) == pytest.approx(gate.parameters)
    assert gate.flops(3) == 2 * 3 * 2 * 2 * 64 * 256


def test_absurd_sizes_are_refused_by_name() -> None:
    for key, value in (("layers", 0), ("kv_heads", 5), ("vocabulary", 2**30), ("mlp_matrices", 4)):
        sizes = dict(layers=2, width=64, heads=4, kv_heads=2, head_width=16, mlp_width=128)
        with pytest.raises(BadSize):
            Model("bad", **{**sizes, "vocabulary": 100, key: value})
