"""Hold each theory against figures that were worked out by hand or published."""

from __future__ import annotations

import math
import random

import pytest
from rich.cells import cell_len

from gpuperf.peaks.find import find_device
from gpuperf.show.render import render
from gpuperf.show.screen import Screen
from gpuperf.show.table import Table
from gpuperf.theory.attention import eager, fused, kernels
from gpuperf.theory.attention_io import blocks, sm_read_bytes
from gpuperf.theory.generations import chips, tensor_rate, vector_rate
from gpuperf.theory.links import collectives
from gpuperf.theory.mlp import products
from gpuperf.theory.occupancy import LIMITS, blocks_by
from gpuperf.theory.online_softmax import PASSES, softmax, steps
from gpuperf.theory.recomputation import recomputed_passes, seconds, stored_passes
from gpuperf.theory.ridge import critical_cube, critical_tokens
from gpuperf.theory.sram import largest_square
from gpuperf.theory.table import theory_tables
from gpuperf.theory.theory import QUESTIONS, Chip, find_theory, listed_names, values_of

H200, A100 = Chip(find_device("h200-sxm")), Chip(find_device("a100-sxm4-40gb"))
BARE: frozenset[str] = frozenset()
BOTH = frozenset({"mask", "dropout"})


@pytest.mark.parametrize(
    ("d", "more", "intensities"),
    [
        (64, BOTH, (12.6, 13.9, 14.7, 15.1, 15.4, 15.5)),
        (64, BARE, (21.8, 26.0, 29.0, 30.7, 32.1, 32.5)),
        (128, BOTH, (20.8, 24.6, 27.4, 28.9, 30.1, 30.5)),
        (128, BARE, (32.3, 42.7, 51.7, 57.4, 62.7, 64.1)),
    ],
)
def test_the_intensity_of_eager_attention_rises_to_a_limit(
    d: int, more: frozenset[str], intensities: tuple[float, ...]
) -> None:
    for n, expected in zip((128, 250, 512, 1024, 4096, 16384), intensities, strict=True):
        _, moved, flops = eager(n, d, 1, 2, more)
        assert flops / moved == pytest.approx(expected, abs=0.051)


def test_the_scores_of_eager_attention_are_the_bytes_that_were_measured() -> None:
    """13.03 GB were counted on an H200: 4 × 16 heads, n 4096, d 64, the scale a kernel."""
    _, moved, _ = eager(4096, 64, 64, 2, frozenset({"scale"}))
    assert moved == pytest.approx(13.03e9, rel=0.002)
    assert fused(4096, 64, 64, 2)[1] == pytest.approx(0.134e9, rel=0.002)
    assert fused(8, 8, 1, 2, BOTH)[2] == eager(8, 8, 1, 2, BOTH)[2] > fused(8, 8, 1, 2)[2]
    assert [name for name, _, _ in kernels(8, 8, 1, 2, BOTH)] == [
        *("q kᵀ", "mask", "softmax", "dropout", "p v")
    ]


def test_the_fused_form_has_half_of_n_as_its_intensity() -> None:
    _, moved, flops = fused(4096, 64, 1, 2)
    assert flops / moved == pytest.approx(4096 / 2, rel=0.03)  # and the softmax's FLOPs


def test_a_backward_pass_is_two_forward_passes_but_for_the_first_layer() -> None:
    with_gradient, without = products(8, 16, 32, 2, True), products(8, 16, 32, 2, False)
    assert {flops for _, _, flops, _ in with_gradient} == {2 * 8 * 16 * 32}
    count = [sum(p[1] == "backward" for p in each) for each in (with_gradient, without)]
    assert count == [4, 3]
    assert sum(p[1] == "forward" for p in without) == 2


def test_the_ridge_in_tokens_is_that_of_a_published_sweep() -> None:
    ridge = H200.ridge("bf16")
    assert ridge == pytest.approx(206.1, abs=0.1)
    assert critical_tokens(ridge, 8192, 8192, 2, 2) == pytest.approx(217, abs=0.5)
    assert critical_tokens(ridge, 4096, 4096, 2, 2) == pytest.approx(229, abs=0.5)
    assert A100.ridge("bf16") == pytest.approx(200.6, abs=0.1)
    assert critical_tokens(ridge, 128, 128, 2, 2) is None
    assert critical_cube(ridge, 2) == math.ceil(206.125 * 3)


def test_at_the_critical_tokens_bytes_and_flops_take_the_same_time() -> None:
    for _ in range(100):
        k, m = random.randint(1000, 10**6), random.randint(1000, 10**6)
        tokens = critical_tokens(200.0, k, m, 2, 1)
        if tokens is not None:
            moved = k * m * 1 + tokens * (k + m) * 2
            assert 2 * tokens * k * m / moved == pytest.approx(200.0)


def test_tensor_cores_outgrew_memory_and_vector_units_did_not() -> None:
    first, *_, last = chips()
    assert first.peaks.id == "v100-sxm2"
    tensor = tensor_rate(last) / tensor_rate(first)  # type: ignore[operator]
    vector = vector_rate(last) / vector_rate(first)  # type: ignore[operator]
    memory = last.bandwidth / first.bandwidth  # type: ignore[operator]
    assert (tensor, vector, memory) == pytest.approx((18.0, 4.8, 8.6), rel=0.01)


def test_the_worked_example_of_the_online_softmax() -> None:
    assert [row[3] for row in steps((2, 1, 5))] == pytest.approx([1, 1.3679, 1.0681], abs=5e-5)
    assert softmax((2, 1, 5)) == pytest.approx([0.046613, 0.017148, 0.936240], abs=5e-7)
    assert softmax((-700.0, 700.0)) == [0.0, 1.0]
    assert {way: sum(passes) for way, passes in PASSES.items()} == {
        "safe": 4,
        "online": 3,
        "fused": 2,
    }


def test_scores_of_one_head_that_fit_a_block() -> None:
    assert largest_square(164 * 1024, 2) == 289
    assert largest_square(H200.block_shared, 2) == 340
    assert largest_square(None, 2) is None


@pytest.mark.parametrize(
    ("kib", "tiles"),
    [
        (192, {64: (384, 64), 128: (192, 128), 256: (96, 96), 512: (48, 48)}),
        (227, {64: (454, 64), 128: (227, 128), 256: (114, 114), 512: (57, 57)}),
    ],
)
def test_tiles_of_flash_attention(kib: int, tiles: dict[int, tuple[int, int]]) -> None:
    assert {d: blocks(kib * 1024, d, 2) for d in tiles} == tiles


def test_a_tile_of_all_queries_reads_keys_and_values_once() -> None:
    v = 4096 * 64 * 2
    assert sm_read_bytes(4096, 64, 1, 2, rows=4096) == 3 * v == fused(4096, 64, 1, 2)[1] - v


def test_passes_of_three_sigmoids() -> None:
    assert (stored_passes(3), recomputed_passes()) == (9, 5)
    assert stored_passes(1) == recomputed_passes()
    bound = seconds(5, 1e6, 4, "fp32", H200)
    assert bound == pytest.approx(1e6 / 66.9e12, rel=0.01)


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "by", "fewest"),
    [
        ("9.0", 1024, 32, 0, "threads", 2),
        ("9.0", 32, 32, 0, "blocks", 32),
        ("9.0", 256, 128, 0, "registers", 2),
        ("9.0", 256, 33, 0, "registers", 6),  # 40 registers are given, 48 warps, 8 a block
        ("9.0", 128, 32, 100 * 1024, "shared memory", 2),
        ("9.0", 128, 32, 113 * 1024, "shared memory", 2),
        ("9.0", 128, 32, 113 * 1024 + 1, "shared memory", 1),
        ("9.0", 128, 32, 227 * 1024, "shared memory", 1),
        ("9.0", 128, 32, 227 * 1024 + 1, "shared memory", 0),
        ("8.6", 1024, 32, 0, "threads", 1),
        ("7.0", 128, 32, 96 * 1024, "shared memory", 1),
    ],
)
def test_the_resource_that_limits_the_blocks(
    capability: str, threads: int, registers: int, shared: int, by: str, fewest: int
) -> None:
    counts = blocks_by(LIMITS[capability], capability, threads, registers, shared)
    assert min(counts, key=lambda name: counts[name]) == by
    assert counts[by] == fewest


@pytest.mark.parametrize("name", [name for name in listed_names() if name not in QUESTIONS])
def test_the_tables_of_each_theory_fit_a_hundred_columns(name: str) -> None:
    theory = find_theory(name)
    text = render(theory_tables(name, theory, values_of(theory, {}), H200), "table", Screen(100))
    assert max(map(cell_len, text.splitlines())) <= 100


def tables(name: str, given: dict[str, str]) -> list[Table]:
    theory = find_theory(name)
    return theory_tables(name, theory, values_of(theory, given), H200)


def test_collectives_send_what_a_hand_counts() -> None:
    """A ring all-reduce of 8 ranks has 14 steps of an eighth; 7 others' eighths are gathered."""
    by = {(name, how): rest for name, how, *rest in collectives(800.0, 8)}
    assert by["all-reduce", "ring"] == [14, 14 * 100.0, 1.75]
    assert by["all-reduce", "tree"] == [6, 1600.0, 1.75]
    assert by["all-gather", "ring"] == [7, 700.0, 0.875]
    assert by["broadcast", "ring"] == [7, 800.0, 1.0]
    assert by["all-to-all", "direct"] == [1, 700.0, 0.875]
    two = {(name, how): rest for name, how, *rest in collectives(800.0, 2)}
    assert two["all-reduce", "ring"] == two["all-reduce", "tree"] == [2, 800.0, 1.0]


def test_a_large_all_reduce_keeps_the_link_busy_and_a_tree_is_quicker_for_a_small_one() -> None:
    table, *_ = tables("collectives", {"size": "1k,1G", "ranks": "2,8,64"})
    rows = [row for row in table.rows if row["collective"] == "all-reduce"]
    at = {(row["ranks"], row["size"], row["algorithm"]): row for row in rows}
    usable = 20.6 / 25 * 450e9  # 370.8 GB/s, NCCL's own
    for ranks in (2, 8):
        assert at[ranks, 2**30, "ring"]["busbw"] == pytest.approx(usable, rel=0.01)
    assert at[2, 2**10, "ring"]["seconds"] == pytest.approx(7.8e-6, rel=0.01)
    assert at[8, 2**10, "tree"]["seconds"] < at[8, 2**10, "ring"]["seconds"]
    assert at[8, 2**30, "tree"]["seconds"] > at[8, 2**30, "ring"]["seconds"]
    beyond, *_ = tables("collectives", {"size": "1G", "ranks": "64", "network": "50"})
    assert beyond.rows[0]["busbw"] == pytest.approx(50e9, rel=0.01)


def test_an_all_to_all_leaves_the_host_by_the_share_of_each_gpu() -> None:
    """Of 16 parts of 67.1 MB 8 leave a host of 8 GPUs: 537 MB over 400 / 8 GB/s."""
    table, *_ = tables("collectives", {"size": "1G", "ranks": "8,16"})
    within, beyond = (row for row in table.rows if row["collective"] == "all-to-all")
    assert within["busbw"] == pytest.approx(20.6 / 25 * 450e9, rel=0.01)
    assert beyond["seconds"] == pytest.approx(2**29 / 50e9 + 7.2e-6, rel=1e-3)
    table, *_ = tables("collectives", {"size": "1G", "ranks": "2", "host": "1"})
    assert table.rows[-1]["seconds"] == pytest.approx(2**29 / 400e9 + 7.2e-6, rel=1e-3)


def test_gradients_of_8_billion_parameters_hide_behind_a_thousand_tokens() -> None:
    """16.06 GB · 7/4 / 370.8 GB/s = 75.8 ms, beside 4 · 7.5e9 FLOPs a token at 40 % of 989.5e12."""
    _, training = tables("collectives", {"ranks": "8"})
    data, sharded, tensor = training.rows
    assert data["seconds"] == pytest.approx(75.8e-3, rel=1e-3)
    assert data["tokens"] == pytest.approx(1000, abs=1)
    assert sharded["tokens"] == data["tokens"]
    # 4 · 32 layers of 8,192 bytes, over the eighth of 4.5e10 FLOPs that a GPU has of a token.
    assert tensor["of_compute"] == pytest.approx(0.348, rel=0.01)
