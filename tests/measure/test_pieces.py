"""Does a comparison by pieces find what one of whole tensors finds?"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from gpuperf.measure import agreement, pieces
from gpuperf.measure import deviation as compared
from gpuperf.measure.deviation import WrongResult, deviation
from gpuperf.measure.pieces import largest_error, mean_square, row_errors

SHAPES = ((7,), (1000,), (30, 40), (5, 6, 70), (3, 4, 5, 16), (1, 300), (1, 1, 1000), (200, 1))


def pair(shape: tuple[int, ...], odd: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(len(shape))
    want = torch.randn(shape, dtype=torch.float64, generator=generator)
    want *= 10 ** torch.randn(shape[0], *[1] * (len(shape) - 1), generator=generator).double()
    got = want * (1 + 1e-3 * torch.randn(shape, dtype=torch.float64, generator=generator))
    if odd:
        got.view(-1)[2:4] = want.view(-1)[2:4] = torch.tensor([math.nan, math.inf]).double()
    return got.float(), want


@pytest.mark.parametrize("size", [3, 16, 50])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_deviation_by_pieces_is_that_of_the_whole(
    shape: tuple[int, ...], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    column, every = torch.rand(*shape[:-1], 1) * 1e-3, torch.rand(shape) * 1e-3
    for odd, granted, least in itertools.product(
        (False, True), (None, column, every), (None, every)
    ):
        got, want = pair(shape, odd)
        monkeypatch.setattr(pieces, "PIECE", 2**25)
        whole = deviation(got, want, 1e-2, granted, least)
        monkeypatch.setattr(pieces, "PIECE", size)
        parted = deviation(got, want, 1e-2, granted, least)
        assert parted.error == pytest.approx(whole.error, rel=1e-9)
        assert parted.rms == pytest.approx(whole.rms, rel=1e-9)
        assert (parted.rows, parted.rms_tolerance) == (whole.rows, whole.rms_tolerance)
        assert pieces.is_large(want) == (want.numel() > size)


def test_an_unwritten_element_is_found_in_any_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    got, want = pair((30, 40), False)
    got[29, 39] = math.nan
    monkeypatch.setattr(pieces, "PIECE", 16)
    with pytest.raises(WrongResult, match="left 1 of 1200"):
        compared.deviation(got, want, 1e-2)


def test_a_nan_in_the_place_of_a_number_is_no_small_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference has a NaN elsewhere, so that their number is right."""
    got, want = torch.ones(100), torch.ones(100)
    want[50] = got[3] = math.nan
    for size in (2**25, 16):
        monkeypatch.setattr(pieces, "PIECE", size)
        assert math.isnan(deviation(got, want, 1e-2).error)
    assert agreement._difference(got, want, None)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), *SHAPES])
def test_errors_of_rows_and_of_all(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 16)
    got, want = pair(shape, False) if math.prod(shape) > 1 else (torch.ones(shape),) * 2
    off = (got.double() - want.double()).abs()
    rows = off.amax(-1, keepdim=True) if off.dim() and off.numel() else off
    assert torch.equal(row_errors(got, want), rows)
    assert largest_error(got, want) == (float(off.max()) if off.numel() else 0.0)
    expected = float(got.double().square().mean()) if got.numel() else 0.0
    assert mean_square(got) == pytest.approx(expected)


def test_what_is_infinite_on_one_side_alone_is_the_largest_error_and_no_error_of_a_row() -> None:
    got, want = torch.tensor([1.0, math.inf]), torch.tensor([1.0, 2.0])
    assert largest_error(got, want) > 1e300
    assert row_errors(got, want).tolist() == [0.0]
    assert largest_error(got, got) == 0.0
