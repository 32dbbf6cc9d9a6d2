"""Does a comparison allow honest roundings, whatever the values, and nothing larger?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from judged_vectors import COUNT, make, piece  # noqa: F401

from gpuperf.judge.inside import answers
from gpuperf.judge.inside.answers import Answers
from gpuperf.judge.inside.comparison import (
    _moved,
    accepts,
    allowed_of,
    answer_of,
    compare,
    is_excused,
    own_tolerance,
)
from gpuperf.judge.inside.contents import inputs_of
from gpuperf.judge.inside.first_calls import first_calls
from gpuperf.judge.inside.layout import put_together
from gpuperf.judge.inside.problem import Problem, widened
from gpuperf.judge.protocol import Contents
from gpuperf.measure import pieces
from gpuperf.measure.deviation import WrongResult


def test_scalars_and_vectors_are_moved_alike() -> None:
    for value in (torch.tensor(60.0), torch.tensor([60.0]), torch.full((300,), 60.0)):
        off = (_moved(value) - 60.0).abs() / 60.0
        assert off.max().item() == pytest.approx(128 * 2.0**-24, rel=1e-6)
    off = (_moved(torch.full((300,), 60.0).bfloat16()) - 60.0).abs() / 60.0
    assert off.max().item() == pytest.approx(8 * 2.0**-8)
    assert _moved(torch.tensor([3])).tolist() == [3]


def heads(seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(2, 8, 512, 64) for _ in range(3)]


def attention(*given: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(*given)


@pytest.mark.parametrize("kind", ["offset", "extreme"])
def test_two_ways_to_compute_attention_are_right_for_values_that_amplify_rounding(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one change of the inputs moves a row is chance: other rows show what it may move."""
    monkeypatch.setattr(pieces, "PIECE", 2**14)
    exact = lambda *given: attention(*widened(list(given)))  # noqa: E731
    problem = Problem(heads, attention, exact, pure=True)
    for seed in range(3):
        skeleton, tensors = inputs_of(problem, Contents(0, seed, kind))
        q, k, v = given = put_together(skeleton, tensors)
        answer = answer_of(problem, given, harsh=True)
        scores = (q * 8**-0.5) @ (k * 8**-0.5).transpose(-1, -2)
        compare(problem, given, [torch.softmax(scores, -1) @ v], answer)
        with pytest.raises(WrongResult):
            compare(problem, given, [torch.softmax(scores.bfloat16().float(), -1) @ v], answer)


def test_terms_are_those_of_one_operator_whatever_is_reduced_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pieces, "PIECE", 2**14)
    labels = torch.arange(64) % 100

    def loss(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x @ w, labels)

    def draw(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [torch.randn(64, 96), torch.randn(96, 100) / 10]

    problem = Problem(draw, loss, lambda x, w: loss(x.double(), w.double()), pure=True)
    problem = replace(problem, terms=first_calls(problem, 1).terms)
    assert problem.terms == 96
    twice = Problem(heads, lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2), -1) @ v)
    assert first_calls(twice, 1).terms == 512
    assert first_calls(Problem(make, torch.sin), 1).terms == 0
    x, w = given = draw(2)
    half = F.cross_entropy(x[::2] @ w, labels[::2])
    with pytest.raises(WrongResult):
        compare(problem, given, [half], answer_of(problem, given))


def signs(x: torch.Tensor) -> torch.Tensor:
    return torch.sign(x - x.mean(1, keepdim=True))


def levels(x: torch.Tensor) -> torch.Tensor:
    step = x.abs().amax(1, keepdim=True) / 127
    return torch.round(x / step) * step


@pytest.mark.parametrize("function", [signs, levels])
@pytest.mark.parametrize("kind", ["scale", "offset", "constant"])
def test_a_step_that_flips_in_one_row_frees_no_other_row(
    function: Callable[[torch.Tensor], torch.Tensor], kind: str
) -> None:
    def draw(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [torch.randn(96, 512)]

    problem = Problem(draw, function, lambda x: function(x.double()), pure=True)
    for seed in range(5):
        skeleton, tensors = inputs_of(problem, Contents(0, seed, kind))
        given = put_together(skeleton, tensors)
        answer = answer_of(problem, given, harsh=True)
        compare(problem, given, [function(*given)], answer)
        zeroed = function(*given)
        zeroed[1::2] = 0.0
        for wrong in (zeroed, 1.05 * function(*given)):
            with pytest.raises(WrongResult):
                compare(problem, given, [wrong], answer)


def test_a_result_without_elements_is_right_for_all_values() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x.new_zeros(3, 0)

    problem = Problem(make, both, lambda x: both(x.double()), pure=True)
    skeleton, tensors = inputs_of(problem, Contents(0, 1, "offset"))
    given = put_together(skeleton, tensors)
    answer = answer_of(problem, given, harsh=True)
    assert compare(problem, given, list(both(*given)), answer)[0] <= 2.0**-20
    with pytest.raises(WrongResult):
        compare(problem, given, [both(*given)[0] + 1, both(*given)[1]], answer)


def test_a_mean_may_be_added_in_four_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a row of equal numbers, roundings do not cancel, and the norm multiplies them by 316."""
    monkeypatch.setattr(pieces, "PIECE", 2**14)

    def norm(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[1:])

    def by_lanes(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(96, 4)
        for part in x.split(4, 1):
            total = total + part
        off = x - total.sum(1, keepdim=True) / 512
        return off * torch.rsqrt(off.square().mean(1, keepdim=True) + 1e-5)

    problem = Problem(lambda seed: [torch.randn(96, 512)], norm, lambda x: norm(x.double()))
    for seed in range(20):
        torch.manual_seed(seed)
        skeleton, tensors = inputs_of(problem, Contents(0, seed, "constant"))
        given = put_together(skeleton, tensors)
        answer = answer_of(problem, given, harsh=True)
        compare(problem, given, [by_lanes(*given)], answer)
        with pytest.raises(WrongResult):
            compare(problem, given, [given[0] - given[0].mean(1, keepdim=True)], answer)


def factors(seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(16, 2**16), torch.randn(2**16, 16)]


def test_a_sum_of_products_may_be_added_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 2**25)
    exact = lambda a, b: a.double() @ b.double()  # noqa: E731
    problem = Problem(factors, torch.matmul, exact, pure=True)
    problem = replace(problem, terms=first_calls(problem, 1).terms)
    assert problem.terms == 2**16
    a, b = given = factors(3)
    answer = answer_of(problem, given)
    in_order = torch.zeros(16, 16)
    for column, row in zip(a.unbind(1), b, strict=True):
        in_order += column[:, None] * row
    compare(problem, given, [in_order], answer)
    half = a.bfloat16().float() @ b
    with pytest.raises(WrongResult):
        compare(problem, given, [half], answer)
    tf32 = [(t.view(torch.int32) & ~0x1FFF).view(torch.float32) for t in given]
    with pytest.raises(WrongResult):
        compare(problem, given, [tf32[0] @ tf32[1]], answer)


def rounds(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(1000 * x)


def refuses(*_: object) -> torch.Tensor:
    raise AssertionError("the answer in float64 is not needed")


def test_the_references_own_large_result_needs_no_answer_in_float64(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pieces, "PIECE", COUNT - 1)
    problem, (x,) = Problem(make, rounds, refuses), make(1)
    assert own_tolerance(problem, [x], [rounds(x)]) == allowed_of(torch.float32)
    assert own_tolerance(problem, [x], [rounds(x).double()]) is None
    assert own_tolerance(problem, [x], [rounds(x)[None]]) is None
    off = rounds(x)
    off[-1] = torch.nextafter(off[-1], torch.tensor(2.0))
    assert own_tolerance(problem, [x], [off]) is None
    x[0] = torch.nan
    assert own_tolerance(problem, [x], [rounds(x)]) is None
    judged = replace(problem, check=lambda arguments, outputs: "the task has a check of its own")
    for other in (judged, replace(problem, relative=1e-5), replace(problem, absolute=1e-5)):
        assert own_tolerance(other, make(1), [rounds(make(1)[0])]) is None
    monkeypatch.setattr(pieces, "PIECE", COUNT)
    assert own_tolerance(problem, make(1), [rounds(make(1)[0])]) is None


@pytest.mark.parametrize("own", [True, False])
def test_results_are_compared_with_float64_from_the_first_that_is_not_the_references(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", COUNT - 1)
    worker, computed = Answers(), []

    def exact(x: torch.Tensor) -> torch.Tensor:
        computed.append(len(x))
        return rounds(x)

    worker._problem, worker._memory = Problem(make, rounds, exact), torch.empty(0)
    monkeypatch.setattr(Answers, "_changed", lambda self, slot, tensors, side: "")
    worker._held = {slot: Contents(slot, slot + 1, "nominal") for slot in range(2)}
    for slot, seed in ((0, 1), (1, 2)):
        result = rounds(make(seed)[0]) * (1 if own else 1 + 2**-23)
        monkeypatch.setattr(answers, "view_of", lambda memory, spec, at, it=result: it)
        audit = worker._audit(slot, (None,), 0)  # type: ignore[arg-type]
        assert not audit.reason
        assert audit.tolerance > 0
    assert len(computed) == (0 if own else 2)
    assert worker._differs is not own


@pytest.mark.parametrize(
    ("kind", "factor", "undecided"),
    [("scale", 1e5, True), ("scale", 1.0, False), ("nominal", 1e5, True), ("nominal", 0.3, False)],
)
def test_a_result_is_undecided_where_the_reference_overflows(
    kind: str, factor: float, undecided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan that joins products of parts multiplies zero by infinity, where one that goes from
    element to element has infinity."""

    def products(x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x.abs() * factor + 0.5, 0)

    worker = Answers()
    worker._problem = Problem(make, products, lambda x: products(x.double()))
    worker._memory, worker._held = torch.empty(0), {0: Contents(0, 1, kind)}
    monkeypatch.setattr(Answers, "_changed", lambda self, slot, tensors, side: "")
    result = products(inputs_of(worker._problem, worker._held[0])[1][0])
    result[torch.isfinite(result).sum() - 2 :] = torch.nan
    monkeypatch.setattr(answers, "view_of", lambda *_: result)
    audit = worker._audit(0, (None,), 0)  # type: ignore[arg-type]
    assert audit.undecided is undecided
    assert bool(audit.reason) is not undecided


WIDTH = 512


def scanned(x: torch.Tensor, parts: int) -> torch.Tensor:
    """Return products of the first elements of rows, of *parts* parts that are then joined."""
    each = torch.cumprod(x.reshape(len(x), parts, -1), -1)
    before = torch.cumprod(torch.nn.functional.pad(each[..., -1], (1, -1), value=1.0), -1)
    return (each * before[..., None]).reshape(x.shape)


@pytest.mark.parametrize("scale", [0.1, 1.0, math.e, 10.0])
def test_what_overflows_excuses_nothing_else(scale: float) -> None:
    """A right scan by parts is not wrong, whatever overflows in it; other results are."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cumprod(x, 1), torch.softmax(x, 1)

    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(200, WIDTH, generator=generator) * scale]
    problem = Problem(lambda seed: given, both, lambda x: both(x.double()))
    answer = answer_of(problem, given, harsh=True)
    products, shares = both(given[0])

    def refused(*outputs: torch.Tensor) -> bool:
        try:
            compare(problem, given, list(outputs), answer)
        except WrongResult:
            return not is_excused(problem, given, list(outputs), answer)
        return False

    assert not refused(scanned(given[0], 8), shares)
    assert refused(scanned(given[0], 8), shares * 0)
    assert refused(scanned(given[0], 8), shares.double())
    assert refused(products * 0, shares)
    assert refused(products.flip(0), shares)
    assert refused(torch.full_like(products, torch.nan), shares)
    assert refused(scanned(given[0], 8), torch.full_like(shares, torch.nan))
    assert refused(scanned(given[0], 8), torch.where(products.isfinite(), shares * 1.1, 0.777))
    if not products.isfinite().all():
        assert refused(scanned(given[0], 8), torch.where(products.isfinite(), shares, 0.777))
    assert refused(scanned(given[0], 8))


def test_complex_results_may_be_rounded() -> None:
    problem = Problem(make, torch.fft.fft, lambda x: torch.fft.fft(x.double()))
    (x,) = make(1)
    answer = answer_of(problem, [x])
    right = torch.fft.fft(x.double()).to(torch.complex64)
    assert answer.wide
    error, bound = compare(problem, [x], [right * (1 + 2.0**-23)], answer)
    assert error <= bound
    for wrong in (right.conj().resolve_conj(), right.roll(1), right * (1 + 1e-4)):
        with pytest.raises(WrongResult, match="is off by"):
            compare(problem, [x], [wrong], answer)


def test_results_whose_size_depends_on_the_values_are_compared() -> None:
    def upper(x: torch.Tensor) -> torch.Tensor:
        return x[x > 1 + 1e-7]

    given = [torch.linspace(0, 2, COUNT) + 2.0**-24]
    given[0][300] = 1 + 2.0**-23
    problem = Problem(lambda seed: given, upper, lambda x: upper(x.double()))
    answer = answer_of(problem, given, harsh=True)
    assert answer.moved is None
    compare(problem, given, [upper(given[0])], answer)


def test_the_places_of_what_overflows_are_excused_with_it() -> None:
    def largest(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple((x * x).max(1))

    given = [torch.linspace(1.0, 400.0, 64).half()[:, None].repeat(1, 8)]
    problem = Problem(lambda seed: given, largest, lambda x: largest(x.double()))
    answer = answer_of(problem, given, harsh=True)
    values, places = largest(given[0])
    assert 0 < values.isinf().sum() < len(values)
    assert is_excused(problem, given, [values, torch.where(values.isinf(), 7, places)], answer)
    assert not is_excused(problem, given, [values, places + 1], answer)
    assert not is_excused(problem, given, [values.float(), places], answer)


def test_the_own_comparison_of_a_task_excuses_for_itself() -> None:
    def compared(*_: Any) -> tuple[float, float]:
        raise WrongResult("is off")

    given = [torch.full((4, 8), 1e30)]
    problem = Problem(lambda seed: given, lambda x: x * 1e30, compare=compared)
    answer = answer_of(problem, given, harsh=True)
    assert not is_excused(problem, given, [given[0]], answer)


def test_sums_in_float64_may_be_added_in_another_order() -> None:
    (x,) = (torch.randn(4, 4096, dtype=torch.float64) for _ in range(1))
    problem = Problem(lambda seed: [x], lambda x: x.cumsum(1), lambda x: x.double().cumsum(1))
    blocks = x.view(4, 64, 64).cumsum(2)
    blocks[:, 1:] += blocks[:, :-1, -1].cumsum(1)[:, :, None]
    answer = answer_of(problem, [x])
    compare(problem, [x], [blocks.view(4, 4096)], answer)
    with pytest.raises(WrongResult):
        compare(problem, [x], [x.float().cumsum(1).double()], answer)


@pytest.mark.parametrize("function", [torch.conj, lambda x: x.conj().imag])
def test_results_that_torch_changes_when_they_are_read_are_compared_as_read(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return function(torch.fft.fft(x))

    problem = Problem(make, call, lambda x: call(x.double()))
    assert first_calls(problem, 1).views
    (x,) = make(1)
    answer = answer_of(problem, [x])
    assert not any(t.is_conj() or t.is_neg() for t in (*answer.own, *answer.exact))
    compare(problem, [x], [call(x).resolve_conj().resolve_neg()], answer)


@pytest.mark.parametrize("short", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_casts_within_a_reference_round_its_answer_in_float64(short: torch.dtype) -> None:
    wide = torch.float16 if short == torch.float8_e4m3fn else short

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a.to(short).to(wide) @ b.to(short).to(wide)).float()

    def drawn(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [torch.randn(32, 256), torch.randn(256, 32)]

    problem = Problem(drawn, call, lambda a, b: call(a.double(), b.double()))
    given = drawn(1)
    answer = answer_of(problem, given)
    assert answer.wide
    rounded = [each.to(short).double() for each in given]
    assert torch.allclose(answer.exact[0], rounded[0] @ rounded[1], rtol=1e-2, atol=1e-2)
    right = (given[0].to(short).float() @ given[1].to(short).float()).to(wide).float()
    assert accepts(problem, given, [right], answer)
    assert not accepts(problem, given, [right * 1.1], answer)
