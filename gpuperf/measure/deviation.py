"""Compare a result with its reference, and a matrix product with the product of its factors.

The docstring of `checks` derives the tolerances.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import torch

from gpuperf.measure.pieces import as_rows, is_large, pairs, pieces
from gpuperf.model.record import Check

RMS_SHARE = 0.25  # tolerance of the rms error of many elements, over that of one element
VECTORS = 4  # random vectors of Freivalds's test
# A result of so many elements is compared on the host: a process loads each GPU kernel that it uses
# first in 5 to 20 ms (H200), and a comparison takes a dozen.
FEW = 2**18
SLICE = 2**23  # elements that are converted to float64 at a time

# Half the spacing of numbers just above 1: 2^-p with p bits of significand, the hidden one counted.
UNIT_ROUNDOFF = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "fp8": 2.0**-4,
    "int32": 2.0**-24,  # a sum in int32 is exact, and is scaled in fp32
}


class WrongResult(Exception):
    """The result differs from the reference; the message says how."""

    def __init__(self, message: str, hint: str = "nothing was timed") -> None:
        super().__init__(message)
        self.hint = hint


def deviation(
    got: torch.Tensor,
    want: torch.Tensor,
    allowed: float,
    granted: torch.Tensor | None = None,
    least: torch.Tensor | None = None,
) -> Check:
    """Return the largest and the rms error of *got*, with the bounds that *allowed* gives them.

    *granted* is subtracted from the absolute error of each element; the error is then divided by
    the size of the values, at least *least*. Raises: WrongResult where elements are unwritten.
    """
    few = got.numel() <= FEW
    if few:
        got, want = got.cpu(), want.cpu()
    got = got.to(want.device)
    granted, least = (None if some is None else some.to(want) for some in (granted, least))
    with _one_thread() if few else contextlib.nullcontext():
        return _deviation(got, want, allowed, granted, least)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute on the host in one thread.

    Each operation on few elements takes less than to wake a thread for each processor. Where the
    system grants fewer processors than it shows, as in a container, it takes milliseconds.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _deviation(
    got: torch.Tensor,
    want: torch.Tensor,
    allowed: float,
    granted: torch.Tensor | None,
    least: torch.Tensor | None,
) -> Check:
    rows = got.shape[0] if got.dim() else 1
    if not got.dtype.is_floating_point:
        error = (got.double() - want.double()).abs().max().item() if got.numel() else 0.0
        return Check(error=error, tolerance=0.0, rows=rows)
    if is_large(want):
        return _by_pieces(got, want, allowed, granted, least)
    values, want = got.double(), want.double()
    unwritten = int(torch.isnan(values).sum().item() - torch.isnan(want).sum().item())
    _refuse_unwritten(unwritten, values.numel())
    if not values.numel():
        return Check(error=0.0, tolerance=allowed, rows=rows)
    error = _relative(values, want, granted, least)
    rms = error.square().mean().sqrt().item()
    return _check(error.max().item(), rms, allowed, want)


def _check(error: float, rms: float, allowed: float, want: torch.Tensor) -> Check:
    share = RMS_SHARE + (1 - RMS_SHARE) / math.sqrt(want.numel())
    rows = want.shape[0] if want.dim() else 1
    return Check(error=error, tolerance=allowed, rows=rows, rms=rms, rms_tolerance=share * allowed)


def _refuse_unwritten(count: int, elements: int) -> None:
    if count > 0:
        raise WrongResult(f"left {count} of {elements} checked elements NaN or unwritten")


def _by_pieces(
    got: torch.Tensor,
    want: torch.Tensor,
    allowed: float,
    granted: torch.Tensor | None,
    least: torch.Tensor | None,
) -> Check:
    """Return what `deviation` does without any copy of a whole tensor."""
    got, expected = as_rows(got), as_rows(want)
    unwritten, finite = 0, 0
    squares = torch.zeros(len(expected), dtype=torch.float64, device=want.device)
    for rows, a, b in pairs(got, expected):
        unwritten += int(torch.isnan(a).sum() - torch.isnan(b).sum())
        known = torch.isfinite(b)
        finite += int(known.sum())
        squares[rows] += torch.where(known, b, 0.0).square_().sum(-1)
    _refuse_unwritten(unwritten, want.numel())
    floor = (squares.sum() / max(1, finite)).expand(len(expected))
    if want.dim() > 1:
        row = (squares / expected.shape[1]).reshape(-1, want.shape[-2])
        floor = floor.maximum(row.flatten()).maximum(
            row.mean(0, keepdim=True).expand_as(row).flatten()
        )
    floor = floor.sqrt()[:, None]
    more = [None if each is None else _rows_like(each, want) for each in (granted, least)]
    worst, total = 0.0, 0.0
    for rows, columns in pieces(*expected.shape):
        a, b = got[rows, columns].double(), expected[rows, columns].double()
        grant, least_size = (
            None if each is None else each[rows, columns if each.shape[1] > 1 else slice(None)]
            for each in more
        )
        size = b.abs().clamp_min_(1e-300).maximum(floor[rows])
        error = _error(a, b, size if least_size is None else size.maximum(least_size), grant)
        most = float(error.max())
        worst = worst if most <= worst or math.isnan(worst) else most  # a NaN stays
        total += float(error.square_().sum())
    return _check(worst, math.sqrt(total / want.numel()), allowed, want)


def _rows_like(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return *tensor*, which broadcasts to *like*, as the rows of *like*, or as one column."""
    width = tensor.shape[-1] if tensor.dim() else 1
    return as_rows(tensor.expand(*like.shape[:-1], width))


def _error(
    values: torch.Tensor, want: torch.Tensor, size: torch.Tensor, granted: torch.Tensor | None
) -> torch.Tensor:
    """Return the error of each element, over *size*, beyond what is *granted*."""
    # The result must have an infinity or a NaN of the reference (a masked row's log-sum-exp) too.
    equal = (values == want) | (torch.isnan(values) & torch.isnan(want))
    off = (values - want).abs()
    if granted is not None:
        off = (off - granted).clamp_min(0.0)
    return torch.where(equal, 0.0, torch.where(torch.isfinite(want), off / size, math.inf))


def _relative(
    values: torch.Tensor,
    want: torch.Tensor,
    granted: torch.Tensor | None,
    least: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the error of each element, relative to the size of comparable elements."""
    finite = torch.isfinite(want)
    rms = torch.where(finite, want, 0.0).square().sum() / finite.sum().clamp_min(1)
    size = want.abs().clamp_min(1e-300).clamp_min(rms.sqrt())
    if want.dim() > 1:
        row = torch.where(finite, want, 0.0).square().mean(-1, keepdim=True)
        same = row.mean([dim for dim in range(want.dim()) if dim != want.dim() - 2], keepdim=True)
        size = size.maximum(row.sqrt()).maximum(same.sqrt())
    if least is not None:
        size = size.maximum(least)
    return _error(values, want, size, granted)


def check_product(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    allowed: float,
    pick: Callable[[int, int], torch.Tensor],
) -> None:
    """Compare all of *c* (m, n) with the product of *a* (m, k) and *b* (k, n) by Freivalds's test.

    c·x and a·(b·x) are compared in float64 for vectors x of random signs, and so are y·c and
    (y·a)·b. The roundings of the n elements of a row have random signs, so their sum is √n times
    one rounding, as the sum of the row is √n times one element: relative to each other they are
    bounded by *allowed* too. A wrong tile of 64 x 64 in a row of n is off by √(64/n).
    Raises: WrongResult.
    """
    for left, right, whole in ((a, b, c), (b.t(), a.t(), c.t())):
        signs = 2.0 * pick(right.shape[1] * VECTORS, 2).double() - 1.0
        generator = torch.Generator().manual_seed(int(pick(1, 2**31).item()))
        order = torch.randperm(len(signs), generator=generator)
        x = signs[order].view(-1, VECTORS).to(whole.device)
        want, got = _times(left, _times(right, x)).cpu(), _times(whole, x).cpu()
        size = want.square().mean(1, keepdim=True).maximum(want.square().mean()).sqrt()
        worst = ((got - want).abs() / size.clamp_min(1e-300)).max().item()
        if not worst <= allowed:
            raise WrongResult(
                f"differs from the product of its inputs by {worst:.3g} of a row's size, over the "
                f"tolerance of {allowed:.3g} (Freivalds's test of the whole result)"
            )


def _times(matrix: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Return matrix·vectors in float64, computed some rows at a time."""
    rows = max(1, SLICE // max(1, matrix.shape[1]))
    return torch.cat([part.double() @ vectors for part in matrix.split(rows)])
