"""Hold the claims against figures worked out by hand, and their rulings against their figures."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from measured import MEASURED

from gpuperf.peaks.find import builtin_peaks
from gpuperf.theory.access import sectors, strided, useful_share
from gpuperf.theory.attention_training import eager_step_bytes, fused_step_bytes, step_flops
from gpuperf.theory.claims.arithmetic import derivative
from gpuperf.theory.claims.claim import (
    Claim,
    Known,
    between,
    compute,
    judge,
    near,
    over,
    printed,
    rule,
    under,
)
from gpuperf.theory.claims.devices import IDS
from gpuperf.theory.claims.query import QUANTITIES
from gpuperf.theory.claims.study import CLAIMS, NOTES, Choice, study
from gpuperf.theory.decoding import accepted_tokens, pack, packed_bits, unpack
from gpuperf.theory.graph_amortisation import break_even, speedup
from gpuperf.theory.links import all_reduce_bytes, pcie_bandwidth
from gpuperf.theory.little import attained, bytes_in_flight, threads_needed

WRONG = {
    *("000-04", "000-05", "000-18", "000-19", "000-21", "001-02", "001-03", "001-07"),
    *("001-16", "001-17", "001-18", "001-20", "001-22", "001-31", "001-37", "002-07"),
    *("002-22", "003-01", "003-03", "003-08", "003-11", "003-13", "003-16", "004-11"),
}
UNDECIDED = {"001-32", "003-15", "004-13", "004-23", "004-34"}
BY_RUN = {"000-09": "right", "004-10": "conditional", "004-27": "conditional"}
JUDGED = {claim.id: judge(claim) for claim in CLAIMS}


def test_every_claim_of_the_notes_is_there_once() -> None:
    assert {notes: len(claims) for notes, claims in NOTES.items()} == {
        "000": 23,
        "001": 38,
        "002": 25,
        "003": 20,
        "004": 34,
    }
    for notes, claims in NOTES.items():
        assert [c.id for c in claims] == [f"{notes}-{i:02}" for i in range(1, len(claims) + 1)]
    assert all(claim.quote and claim.check for claim in CLAIMS)


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_claim_is_refuted_by_its_own_arithmetic(name: str) -> None:
    judged = JUDGED[name]
    assert (judged.ruling, judged.basis) == ("wrong", "computed")
    assert not all(figure.holds for figure in judged.computed)
    assert judged.claim.known is None  # no ruling is stored that could stand in


def test_no_other_claim_is_ruled_wrong() -> None:
    rulings = Counter(judged.ruling for judged in JUDGED.values())
    assert {name for name, judged in JUDGED.items() if judged.ruling == "wrong"} == WRONG
    assert {n for n, j in JUDGED.items() if j.ruling in ("open", "opinion")} == UNDECIDED
    assert rulings == {"right": 79, "conditional": 32, "wrong": 24, "open": 4, "opinion": 1}


def test_a_claim_computes_or_says_what_must_be_measured() -> None:
    for judged in JUDGED.values():
        claim = judged.claim
        assert judged.basis != "measured"
        if judged.basis == "known":
            assert claim.known is not None
            assert claim.known.source
            assert claim.waits or claim.queries or judged.ruling == "opinion"
        else:
            assert judged.computed
            assert claim.known is None
        assert all(math.isfinite(figure.value) for figure in judged.computed)


def test_a_query_asks_for_a_quantity_that_exists() -> None:
    for claim in CLAIMS:
        for query in claim.queries:
            assert query.reading in QUANTITIES
            assert query.says or claim.says
            assert not (query.over and query.along)


def test_devices_of_claims_are_known() -> None:
    assert set(IDS.values()) <= {peaks.id for peaks in builtin_peaks()}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_ruling_follows_from_the_figures(claim: Claim) -> None:
    """What the quote says is turned around: the ruling turns too."""
    figures = compute(claim)
    if not figures or claim.known:
        return
    turned = [replace(figure, holds=not figure.holds) for figure in figures]
    ruling, opposite = rule(figures, claim.joint), rule(turned, claim.joint)
    assert JUDGED[claim.id].ruling == ruling
    if ruling == "right":
        assert opposite == "wrong"
    if ruling == "wrong" and not any(figure.holds for figure in figures):
        assert opposite == "right"


def made(values: dict[str, float], joint: bool = False, known: Known | None = None) -> Claim:
    return Claim("9-1", "q", "c", over(1), lambda: values, joint=joint, known=known)


def test_a_claim_is_right_by_all_wrong_by_none_and_conditional_between() -> None:
    assert judge(made({"a": 2, "b": 3})).ruling == "right"
    assert judge(made({"a": 0, "b": 1})).ruling == "wrong"
    assert judge(made({"a": 2, "b": 1})).ruling == "conditional"
    assert judge(made({"a": 2, "b": 1}, joint=True)).ruling == "wrong"
    assert judge(made({"a": 2}, known=Known("open", "s"))).ruling == "open"
    assert judge(made({}, known=Known("right", "s"))).basis == "known"
    with pytest.raises(ValueError, match="neither figures nor"):
        judge(made({}))
    with pytest.raises(ValueError, match="is nan"):
        judge(made({"a": math.nan}))


def test_what_a_quote_says_has_a_tolerance() -> None:
    assert printed("0.9362").holds(0.93624)
    assert not printed("0.9363").holds(0.93624)
    assert printed("161").holds(161.49)
    assert not printed("161").holds(161.51)
    assert near(128, 0.01).holds(126.8)
    assert not near(128, 0.01).holds(126.0)
    assert between(2, 3).holds(3)
    assert not under(3).holds(3)
    assert not over(3).holds(3)


# Typed from a hand calculation: claim, label, figure.
BY_HAND = [
    ("000-03", "A100, far latency", 410.5 / 34.5),
    ("000-06", "V100", 125.0 / 15.7),
    ("000-06", "B200", 2250.0 / 75.0),
    ("000-07", "tensor", 18.0 / 8.556),
    ("000-12", "1,024 FLOP", 6 / 9),
    ("000-16", "1 to 2 waves", 109 / 216),
    ("001-03", "∂L/∂w₃", 2 * 3 * 5),
    ("001-07", "H200", 141e9 / (228 * 1024 * 132)),
    ("001-08", "A100, 8192²", 211.0),
    ("001-08", "A100 80 GB", 312.0 / 2.039),
    ("001-16", "D 64, N 128 to 512", 14.68 / 12.58),
    ("001-17", "bare, D 128", 42.74),
    ("001-18", "D 128", 126.0 / 153.0),
    ("001-31", "eager, GFLOP", 12 * 1024**2 * 64 * 1024 / 1e9),
    ("001-31", "flash, GFLOP", 962.1),
    ("001-32", "eager, dropout", 36.0 / 40.3),
    ("001-33", "H200", (44.6 / 4.01) / (962.1 / 370)),
    ("002-05", "latency of FMA / MMA", 4 / 28.9),
    ("002-07", "a direction", 63.015),
    ("002-12", "ridge", 2.0),
    ("002-15", "over a BLAS of 16 cores", 66.9e12 / 8 / (16 * 96e9)),
    ("002-22", "A100, d 64", 0.5),
    ("003-08", "largest d, fp16", 313),
    ("003-09", "d 512", 512**2 / 98_304),
    ("003-12", "8192 tokens", 1 + 4 * 32 * (8192 + 128) / 4.8e12 * 32 * 2 * 989.4e12 / 16.06e9),
    ("003-16", "steady", 157 / 26.3),
    ("003-11", "n 4096, d 64", (6 * 64 + 4) / 4),
    ("004-09", "bf16 / int4 bytes", 3.879),
    ("004-02", "4096³", 4096 / 3 / 206.125),
    ("004-05", "256 Mi", 5.233e-6 / (2 * 2**30 / 4.8e12)),
    ("004-16", "batch 8", 1 / 2.717857),
    ("004-20", "100 users", 99 * 992 * 131_072 / 1e9),
    ("004-21", "batch 256", 5.0),
    ("004-29", "all cores, with the copy", 62.2 / 460.8),
]


@pytest.mark.parametrize(("name", "label", "value"), BY_HAND)
def test_a_check_computes_what_a_hand_does(name: str, label: str, value: float) -> None:
    figures = {figure.label: figure.value for figure in JUDGED[name].computed}
    assert figures[label] == pytest.approx(value, rel=2e-3)


def test_a_training_step_of_attention_moves_what_was_worked_out() -> None:
    row = (1024, 64, 64 * 16, 2)
    kinds = [(), ("mask",), ("dropout",), ("mask", "dropout"), ("mask", "dropout", "scale")]
    moved = [eager_step_bytes(*row, frozenset(kind)) / 1e9 for kind in kinds]
    assert moved == pytest.approx([25.2, 33.8, 36.0, 44.6, 53.2], abs=0.06)
    assert fused_step_bytes(*row) / 1e9 == pytest.approx(1.61, abs=0.01)
    assert step_flops(*row[:3], True) / step_flops(*row[:3], False) == 7 / 6


def test_a_warp_moves_the_sectors_that_it_touches() -> None:
    assert [sectors(4 * i for i in strided(s)) for s in (1, 2, 8, 16)] == [4, 8, 32, 32]
    assert [useful_share(strided(s)) for s in (1, 2, 4, 8, 16)] == [1, 0.5, 0.25, 0.125, 0.125]
    assert sectors(4 * i for i in strided(1, offset=1)) == 5
    assert useful_share([5] * 32) == 1 / 8  # one word for all lanes


def test_littles_law_of_an_h200() -> None:
    assert bytes_in_flight(354e-9, 4.29e12) == pytest.approx(1.52e6, rel=0.002)
    assert threads_needed(354e-9, 4.29e12, 132, 16) == pytest.approx(719, abs=1)
    assert threads_needed(354e-9, 4.29e12, 132, 4) == pytest.approx(2876, abs=1)
    assert attained(1e6, 354e-9, 4.8e12) == 1e6 / 354e-9
    assert attained(1e9, 354e-9, 4.8e12) == 4.8e12


def test_a_graph_pays_for_its_recording() -> None:
    calls = break_even(157e-6, 80e-3, 30e-6)
    assert calls == pytest.approx(630, abs=1)
    assert speedup(calls, 157e-6, 80e-3, 30e-6) == pytest.approx(1)
    assert speedup(1e9, 157e-6, 80e-3, 30e-6) == pytest.approx(157 / 30, rel=1e-4)
    assert break_even(1.0, 1.0, 2.0) == math.inf


def test_links_and_formulas_of_decoding() -> None:
    assert pcie_bandwidth("5.0") / 1e9 == pytest.approx(63.0, abs=0.02)
    assert all_reduce_bytes(8, 8) == 14
    assert all_reduce_bytes(8, 1) == 0
    assert packed_bits(4, 128) == 4.125
    assert unpack(pack(-8, 7)) == (-8, 7)
    assert accepted_tokens(0.8, 4) == pytest.approx(1 + 0.8 + 0.64 + 0.512 + 0.4096)
    assert derivative(lambda x, y: x**3 * y, (2.0, 5.0), 0) == pytest.approx(60)


def test_measured_figures_fill_in_and_decide_where_nothing_can_be_computed() -> None:
    judged = {each.claim.id: each for each in study(Choice(run=MEASURED)).judged}
    for name, ruling in BY_RUN.items():
        assert (judged[name].ruling, judged[name].basis) == (ruling, "measured")
        assert JUDGED[name].basis == "known"
    asked = {claim.id for claim in CLAIMS if claim.queries}
    assert {name for name, each in judged.items() if each.measured} == asked
    figures = {(n, f.label): f for n, each in judged.items() for f in each.measured}
    witnesses = {  # docs/measured/README.md, docs/measured/*.txt
        ("000-08", "passes"): 11.0,
        ("000-15", "8191³ / 8192³, time"): 5.2,
        ("000-18", "fused, DRAM, exponent"): 1.0,
        ("001-05", "eager, held, exponent"): 1.975,
        ("002-07", "host to device"): 55.5e9,
        ("003-03", "DRAM, 1 Mi columns"): 4.00,
        ("003-04", "online, with the write"): 3.00,
        ("003-11", "eager / efficient, DRAM"): 96,
        ("004-01", "eager / fused, DRAM"): 5.50,
    }
    for key, value in witnesses.items():
        assert figures[key].value == pytest.approx(value, rel=0.01), key
        assert "NVIDIA H" in figures[key].source
    changed = {n for n, each in judged.items() if each.ruling != JUDGED[n].ruling}
    assert changed == set()  # what was measured agrees with what is known
