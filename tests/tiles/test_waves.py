"""Tiles, waves and the cycles that they take: by hand, by property, and on machines made up."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.tiles.waves import Fit, Measured, Tiling, fit, orient, relative_errors, split_points

A100 = Tiling(256, 128, 32, 108)
H200 = Tiling(128, 256, 64, 132)

sizes = st.integers(1, 20_000)
tilings = st.builds(
    Tiling,
    st.sampled_from([8, 64, 128, 192, 256, 320]),
    st.sampled_from([8, 64, 128, 256]),
    st.sampled_from([8, 32, 64, 128]),
    st.integers(1, 200),
)


def test_the_a100_of_nvidias_guide_needs_a_second_wave_for_one_column_more() -> None:
    assert (A100.tiles(2304, 1536), A100.waves(2304, 1536)) == (108, 1)
    assert (A100.tiles(2304, 1537), A100.waves(2304, 1537)) == (117, 2)
    assert A100.wave_efficiency(2304, 1536) == 1
    half = A100.efficiency(2304, 1537, 4096) / A100.efficiency(2304, 1536, 4096)
    assert half == pytest.approx(1537 / 1536 / 2, rel=1e-12)


def test_a_row_beyond_the_tiles_takes_six_for_the_work_of_four() -> None:
    tiling = Tiling(128, 128, 32, 108)
    assert (tiling.tiles(256, 256), tiling.tiles(257, 256)) == (4, 6)
    assert tiling.tile_efficiency(257, 256) == pytest.approx(257 * 256 / (6 * 128 * 128))


@given(tilings, sizes, sizes, sizes)
def test_no_part_is_more_than_all(tiling: Tiling, m: int, n: int, k: int) -> None:
    for part in (
        tiling.tile_efficiency(m, n),
        tiling.wave_efficiency(m, n),
        tiling.depth_efficiency(k),
        tiling.efficiency(m, n, k),
    ):
        assert 0 < part <= 1


@given(tilings, sizes, sizes, sizes)
def test_the_parts_together_are_the_work_over_that_of_the_machine(
    tiling: Tiling, m: int, n: int, k: int
) -> None:
    places = tiling.waves(m, n) * tiling.sms * tiling.rows * tiling.columns
    done = places * tiling.steps(k) * tiling.depth
    assert tiling.efficiency(m, n, k) == pytest.approx(m * n * k / done, rel=1e-9)


@given(tilings, sizes, sizes, sizes, st.integers(0, 500))
def test_a_larger_product_takes_no_fewer_cycles(
    tiling: Tiling, m: int, n: int, k: int, more: int
) -> None:
    model = Fit(tiling, 3000.0, 800.0, 256.0)
    least = model.cycles(m, n, k)
    assert least <= min(
        model.cycles(m + more, n, k), model.cycles(m, n + more, k), model.cycles(m, n, k + more)
    )


@given(tilings, st.integers(1, 5000), st.integers(1, 5000))
def test_whole_waves_of_whole_tiles_waste_nothing(tiling: Tiling, across: int, k: int) -> None:
    m, n = tiling.rows * tiling.sms, tiling.columns * (across % 7 + 1)
    assert tiling.tile_efficiency(m, n) == 1
    assert tiling.wave_efficiency(m, n) == 1


def made_up(
    truth: Fit, m: int = 3072, k: int = 4096, noise: float = 0.0, step: int = 128
) -> list[Measured]:
    draw = random.Random(3)
    return [
        Measured(m, n, k, truth.cycles(m, n, k) * (1 + noise * (draw.random() - 0.5)))
        for n in range(1024, 8193, step)
    ]


def test_a_fit_on_some_sizes_predicts_the_others() -> None:
    truth = Fit(H200, 4000.0, 1500.0, 512.0)
    seen, unseen = split_points(made_up(truth, noise=0.02))
    missed = [abs(error) for error in relative_errors(fit(H200, seen), unseen)]
    assert statistics.median(missed) < 0.01
    assert max(missed) < 0.02


def test_several_k_tell_start_and_step_apart() -> None:
    truth = Fit(H200, 4000.0, 1500.0, 512.0)
    points = [p for k in (512, 2048, 8192) for p in made_up(truth, k=k)]
    found = fit(H200, points)
    assert (found.launch, found.start, found.step) == pytest.approx((4000, 1500, 512), rel=1e-6)


def test_a_stream_k_kernel_shares_k_tiles_and_begins_every_tile_it_touches() -> None:
    """2 × 3 tiles of 2 K-tiles on 4 SMs: 12 K-tiles, 3 for each SM, which are of 2 tiles."""
    streams = Tiling(128, 128, 64, 4, streams=True)
    assert streams.load(256, 384, 128) == (2, 3)
    assert Tiling(128, 128, 64, 4).load(256, 384, 128) == (2, 4)
    assert Tiling(128, 128, 64, 6, streams=True).load(256, 384, 128) == (1, 2)
    assert Fit(streams, 1000.0, 100.0, 10.0).cycles(256, 384, 128) == 1000 + 2 * 100 + 3 * 10


@pytest.mark.parametrize(("share", "bound"), [(0.89, False), (0.91, True)])
def test_a_point_that_takes_what_its_bytes_need_tells_nothing_of_tiles(
    share: float, bound: bool
) -> None:
    point = Measured(1024, 1024, 1024, 1e5, share * 1e5)
    assert point.memory_bound is bound
    slow = replace(point, cycles=1e7, memory=share * 1e7)
    truth = [Measured(1024 * i, 1024 * i, 1024, 1e5 * i * i) for i in (2, 4)]
    alone, beside = fit(H200, truth), fit(H200, [*truth, slow])
    assert (alone == beside) is bound


def test_the_wrong_tile_is_found_out() -> None:
    truth = Fit(H200, 4000.0, 1500.0, 512.0)
    seen, unseen = split_points(made_up(truth))
    wrong = Tiling(64, 64, 64, 132)
    missed = [abs(error) for error in relative_errors(fit(wrong, seen), unseen)]
    assert statistics.median(missed) > 0.02


def test_orientation_is_told_by_the_fit_or_unknown() -> None:
    tall = Fit(Tiling(320, 128, 64, 132), 4000.0, 1500.0, 512.0)
    points = made_up(tall, m=1600, noise=0.01)
    turned = Tiling(128, 320, 64, 132)
    assert orient(turned, points) == (tall.tiling, True)
    assert orient(tall.tiling, points) == (tall.tiling, True)
    assert not orient(tall.tiling, points[:1])[1]
    square = Tiling(128, 128, 64, 132)
    assert orient(square, points) == (square, True)


def test_sizes_are_judged_that_were_not_fitted() -> None:
    points = made_up(Fit(H200, 1.0, 1.0, 1.0))
    seen, unseen = split_points(points)
    assert set(seen) | set(unseen) == set(points)
    assert not set(seen) & set(unseen)
    assert {points[0], points[-1]} <= set(seen)
    assert abs(len(seen) - len(unseen)) <= 2
    assert split_points(points[:2]) == (tuple(points[:2]), ())


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Tiling(0, 128, 64, 132)
    with pytest.raises(ValueError, match="needs a point"):
        fit(H200, [])
