"""The verdict follows from the evidence alone, and a file that claims another one is refused."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_judge import CALLS, evidence, verdict, window

from gpuperf.errors import UsageError
from gpuperf.judge.evidence import Audit, IdleTime, Unfair, WindowTime
from gpuperf.judge.fact import Fact
from gpuperf.judge.rule import judge_case
from gpuperf.judge.score import _sign_rank, score_of
from gpuperf.judge.table import verdict_table
from gpuperf.judge.task import Side
from gpuperf.judge.verdict import exit_code, read_verdict, recheck, write_verdict
from gpuperf.model.cost import Bytes, Cost, Flops
from gpuperf.model.peaks import Ceiling, Figure, Peaks
from gpuperf.show.render import render

WRONG = Audit(1, "offset", reason="is off by 1")
REPLAYED = replace(WRONG, replayed=True)


def test_an_honest_submission_is_valid_with_its_speedup() -> None:
    judged = judge_case(evidence(2.0))
    assert (judged.status, judged.reason) == ("valid", "")
    assert judged.score is not None
    assert judged.score.low < 2.0 < judged.score.high
    assert judged.score.speedup == pytest.approx(2.0, rel=0.05)
    assert judged.score.time_s == pytest.approx(5e-4, rel=0.05)
    assert judged.score.over == "processes"


def test_values_for_which_the_reference_is_off_say_nothing_of_a_submission() -> None:
    undecided = Audit(1, "scale", undecided=True)
    judged = judge_case(replace(evidence(2.0), audits=(*[Audit(1, "nominal")] * 8, undecided)))
    (count,) = [fact.seen for fact in judged.facts if fact.name == "audits"]
    assert (judged.status, count) == ("valid", 8)
    for others in ([undecided] * 8, [*[Audit(1, "nominal")] * 8, *[undecided] * 3]):
        alone = judge_case(replace(evidence(2.0), audits=tuple(others)))
        assert alone.status == "inconclusive"
        assert "audits say nothing, as values overflow" in alone.reason
    changes = replace(undecided, changed="1")
    assert judge_case(replace(evidence(2.0), audits=(changes,) * 8)).status == "wrong"


@given(speedup=st.floats(0.1, 20.0), seed=st.integers(0, 1000))
def test_the_interval_covers_the_speedup_within_a_few_percent(speedup: float, seed: int) -> None:
    score = score_of(evidence(speedup, seed=seed))
    assert score is not None
    assert 0.9 * speedup < score.low <= score.speedup <= score.high < 1.1 * speedup


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        ({"audits": (REPLAYED, WRONG) * 4}, "cheat", "answer earlier contents"),
        ({"replaced": "time.perf_counter"}, "cheat", "time.perf_counter"),
        ({"edited": "the reference's file changed"}, "cheat", "file changed"),
        ({"claims": 0.01}, "cheat", "claims 1 %"),
        ({"audits": (WRONG,) * 8}, "wrong", "is off by 1 (values: offset)"),
        ({"audits": (Audit(1, "nominal", changed="2"),) * 8}, "wrong", "changed the input 2"),
        ({"audits": ()}, "inconclusive", "only 0 results"),
        ({"failure": "timeout", "reason": "no answer"}, "timeout", "no answer"),
        ({"failure": "crashed", "audits": (WRONG,)}, "crashed", ""),
        ({"failure": "crashed", "audits": (REPLAYED,)}, "cheat", ""),
        ({"unfair": (Unfair("constant", "it is constant"),)}, "unfair-task", "constant"),
        ({"noise": 0.6, "processes": 2}, "inconclusive", "too noisy"),
        ({"windows": ()}, "inconclusive", "too few windows"),
    ],
)
def test_each_sign_has_its_status(more: dict[str, object], status: str, words: str) -> None:
    judged = judge_case(evidence(**more))  # type: ignore[arg-type]
    assert judged.status == status
    assert words in judged.reason
    assert judged.score is None


def test_work_in_a_pause_is_suspect_unless_the_reference_does_the_same() -> None:
    busy = tuple(IdleTime(0, "submission", 0.15, 0.14) for _ in range(2))
    calm = tuple(IdleTime(0, "reference", 0.15, 0.0) for _ in range(2))
    library = tuple(IdleTime(0, "reference", 0.15, 0.14) for _ in range(2))
    assert judge_case(evidence(idles=(*busy, *calm))).status == "suspect"
    assert judge_case(evidence(idles=(*busy, *library))).status == "valid"


def test_calls_that_do_the_work_of_others_are_suspect() -> None:
    batched = [
        window(0, number, "submission", calls, 16e-3 if calls == 1 else 1e-3)
        for number, calls in enumerate([CALLS] * 12 + [1] * 4)
    ]
    plain = [
        window(0, number, "reference", calls, 1e-3)
        for number, calls in enumerate([CALLS] * 12 + [1] * 4)
    ]
    judged = judge_case(evidence(windows=(*batched, *plain)))
    assert judged.status == "suspect"
    assert "a call alone takes" in judged.reason


def test_one_late_window_accuses_nobody() -> None:
    honest = evidence()
    late = replace(honest.windows[0], clerk_s=1.0)
    assert judge_case(replace(honest, windows=(late, *honest.windows[1:]))).status == "valid"


def test_of_one_process_the_interval_is_that_of_its_windows() -> None:
    score = score_of(evidence(3.0, processes=1))
    assert score is not None
    assert score.over == "windows"
    assert score.low <= score.speedup <= score.high


@pytest.mark.parametrize("count", [3, 6, 12, 25, 40])
def test_the_sign_test_covers_its_share(count: int) -> None:
    rank = _sign_rank(count)
    outside = 2 * sum(math.comb(count, below) for below in range(rank + 1)) / 2**count
    more = outside + 2 * math.comb(count, rank + 1) / 2**count
    assert rank == 0 or outside <= 0.05
    assert more > 0.05


def test_a_verdict_is_as_bad_as_its_worst_case() -> None:
    two = verdict(evidence(), evidence(case="second", audits=(WRONG,) * 8))
    assert (two.status, two.score, exit_code(two)) == ("wrong", None, 1)
    assert two.reason.startswith("second: ")
    both = verdict(evidence(2.0), evidence(8.0))
    assert both.score is not None
    assert both.score.speedup == pytest.approx(4.0, rel=0.05)
    assert exit_code(both) == 0


def test_a_verdict_is_read_and_judged_again(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    written = verdict(evidence())
    write_verdict(written, path)
    assert recheck(read_verdict(path)) == written
    text = render([verdict_table(written, verbose=True)], "table")
    assert "mine.py against reference.py: valid" in text
    assert "kernels: unavailable" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": "valid"}, "its evidence says 'wrong'"),
        ({"schema": 5}, "its schema is 5"),
        ({"kind": "gate"}, "not written by the judge"),
        ({"cases": []}, "the verdict has no case"),
    ],
)
def test_a_forged_verdict_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = tmp_path / "verdict.json"
    write_verdict(verdict(evidence(audits=(WRONG,) * 8)), path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UsageError, match=said):
        recheck(read_verdict(path))


def test_a_forged_score_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    write_verdict(verdict(evidence()), path)
    data = json.loads(path.read_text())
    data["score"]["speedup"] = 100.0
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="the score does not follow"):
        recheck(read_verdict(path))


@pytest.mark.parametrize("value", ["nan", "1e400", "-1.0", "0.0"])
def test_times_that_are_none_are_refused_in_a_sentence(tmp_path: Path, value: str) -> None:
    path = tmp_path / "verdict.json"
    write_verdict(verdict(evidence()), path)
    data = json.loads(path.read_text())
    for each in data["cases"][0]["evidence"]["windows"]:
        each["clerk_s"] = "TIME"
    path.write_text(json.dumps(data).replace('"TIME"', value))
    with pytest.raises(UsageError):
        recheck(read_verdict(path))


def test_a_valid_case_has_the_speedup_over_torch_compile() -> None:
    plain = evidence(2.0)
    compiled = tuple(
        replace(w, side="compiled", clerk_s=1e-3 + (w.clerk_s - 1e-3) / 4)
        for w in plain.windows
        if w.side == "reference"
    )
    judged = judge_case(replace(plain, windows=(*plain.windows, *compiled)))
    assert judged.compiled is not None
    assert judged.compiled.low < 0.5 < judged.compiled.high
    assert judged.compiled.over == "processes"
    assert judged.score == judge_case(plain).score
    assert judge_case(plain).compiled is None
    wrong = replace(plain, windows=(*plain.windows, *compiled), audits=(WRONG,) * 8)
    assert judge_case(wrong).compiled is None


ROOFS = Peaks(
    "measured",
    "Chip",
    "",
    "",
    "",
    ("Chip",),
    8,
    (Ceiling("vector", "fp32", "", Figure(1e12, "FLOP/s", "measured", "calibrate"), None),),
    {"memory_bandwidth": Figure(1e11, "byte/s", "measured", "calibrate")},
)
BYTES, FLOPS = Bytes(8_000_000, 2_000_000), Flops(250_000_000, "matmul", "fp32")


@pytest.mark.parametrize(
    ("cost", "share", "limiter"),
    [
        (Cost((), (BYTES,)), 0.2, "memory"),  # 100 µs of 500 µs
        (Cost((FLOPS,), (BYTES,)), 0.5, "compute"),  # 250 µs
        (Cost((Flops(10**9, "matmul", "bf16"),), (BYTES,)), None, ""),  # no roof of bf16
        (None, None, ""),
    ],
)
def test_a_valid_case_has_its_share_of_the_roof(
    cost: Cost | None, share: float | None, limiter: str
) -> None:
    judged = judge_case(evidence(2.0, cost=cost, roofs=ROOFS))
    assert judged.score is not None
    if share is None:
        assert judged.light is None
        return
    assert judged.light is not None
    assert judged.light.share == pytest.approx(share, rel=0.05)
    assert (judged.light.limiter, judged.light.source) == (limiter, "measured roofs")
    assert judge_case(evidence(2.0, cost=cost)).light is None
    text = render([verdict_table(verdict(evidence(2.0, cost=cost, roofs=ROOFS)))], "table")
    assert "of roof" in text
    assert "by the measured roofs" in text


def test_a_changed_share_of_the_roof_is_refused(tmp_path: Path) -> None:
    known = verdict(evidence(2.0, cost=Cost((), (BYTES,)), roofs=ROOFS))
    assert known.light == pytest.approx(0.2, rel=0.05)
    write_verdict(replace(known, light=0.9), tmp_path / "verdict.json")
    with pytest.raises(UsageError, match="does not follow"):
        recheck(read_verdict(tmp_path / "verdict.json"))
    write_verdict(known, tmp_path / "verdict.json")
    assert recheck(read_verdict(tmp_path / "verdict.json")) == known


def _clock(windows: Sequence[WindowTime]) -> Fact:
    judged = judge_case(replace(evidence(), windows=tuple(windows)))
    (clock,) = [one for one in judged.facts if one.name == "clock"]
    return clock


def _busy(pairs: int, call_s: float, claims: float, seed: int, most_s: float) -> list[WindowTime]:
    """Windows on a machine that another program takes for up to *most_s* in half of them."""
    draw, windows = random.Random(seed), []
    sides: tuple[tuple[Side, float, float], ...] = (
        ("submission", call_s, claims),
        ("reference", 2e-4, 1.0),
    )
    for number, calls in enumerate([CALLS] * pairs + [0] * 3):
        for side, each_s, claim in sides:
            took_s = calls * each_s
            beside_s = 3e-4 + (draw.uniform(0, most_s) if draw.random() < 0.5 else 0.0)
            windows.append(
                WindowTime(0, number, side, calls, took_s + beside_s, claim * took_s, took_s)
            )
    return windows


@pytest.mark.parametrize("pairs", [4, 6, 26])
def test_a_busy_machine_accuses_no_clock(pairs: int) -> None:
    """Quick calls whose windows the machine makes many times as long."""
    for seed in range(500):
        for call_s in (2e-5, 1e-4):
            busy = _busy(pairs, call_s, 1.0, seed, 6e-3)
            assert _clock(busy).result != "failed", seed


def test_a_busy_machine_hides_no_false_clock() -> None:
    for seed in range(500):
        assert _clock(_busy(26, 2e-4, 0.3, seed, 1e-3)).result == "failed", seed
    assert _clock(_busy(6, 2e-4, 0.3, 0, 0.0)).result == "failed"
    few = _clock(_busy(4, 2e-4, 0.3, 0, 0.0))
    assert (few.result, few.text) == ("unavailable", "too few windows were timed")
    short = _clock(_busy(26, 1e-5, 0.3, 0, 0.0))
    assert short.text == "the calls of a window are too short beside what else it takes"
