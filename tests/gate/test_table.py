"""The table of a gate has the worst case first, says why, and fits a screen."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from synthetic_report import (
    WRONG,
    encoded,
    hostile,
    inconclusive,
    measured,
    mixed,
    regressed,
    report,
    tags_by_case,
    unchanged,
    whole_table,
)

from gpuperf.gate.evidence import DiscardedPair
from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.rule import Pairs
from gpuperf.gate.verdict import Cause, GateReport, exit_code
from gpuperf.show.screen import Screen

TABLE = """\
REGRESSED: matmul/torch m=n=k=1024 is slower

verdict         case                         base      head    change              95 %      q  detectable
──────────────  ───────────────────────  ────────  ────────  ────────  ────────────────  ─────  ──────────
REGRESSED       matmul/torch m=n=k=1024  100.0 µs  105.0 µs   +5.00 %   +4.60 … +5.40 %  2e-05      1.50 %
    more bytes: bytes 268 MB → 537 MB, launches 1 → 2
    same kernels, same launch configuration on both sides
    owner @org/matmul
not comparable  softmax/fused n=64              –         –         –                 –      –           –
    head: error: RuntimeError
inconclusive    softmax/fused n=128             –         –   +1.00 %   -3.00 … +5.00 %    0.6     40.00 %
    too noisy: a slowdown of 10 % could be missed
improved        matmul/torch m=n=k=2048  100.0 µs  90.00 µs  -10.00 %  -11.00 … -9.00 %      –      1.40 %
unchanged       matmul/torch m=n=k=512   100.0 µs  100.0 µs   +0.10 %   -0.10 … +0.30 %      1      1.40 %

5 cases: 1 regressed, 1 not comparable, 1 inconclusive, 1 improved, 1 unchanged
also: softmax/fused n=64 is not comparable
also: softmax/fused n=128 is too noisy: a slowdown of 10 % could be missed
torch is 2.11 on the base and 2.12 on the head
pair 3 discarded: head: other processes had a context on the GPU: 1
the error rate of this suite was not measured here: gpuperf gate calibrate does
base main (0123456789), head topic (fedcba9876)
suite ci on NVIDIA H200, 26 pairs of fresh processes in 5.0 min
6 pairs of all cases, up to 20 fresh ones of the suspicious; regressed where slower than 1 %, at 0.01 over all cases;
  seed 0
blocked timer, cold cache, burst (10 ms idle before each sample), randn data
base and head: geometric mean over the processes judged; change: head over base, less 1, with its 95 % interval; q: rate
  of false alarms among the cases called slower, if this one is too
detectable: the slowdown that is detected with a probability of 0.95; the target is 10 % in every case
the same in all cases, and left out of their names: matmul, softmax: dtype=bf16
gate 20260101-gate-ci, 2026-01-01T12:00:00+00:00, gpuperf 0.1.0
"""  # noqa: E501


def test_the_table_is_worst_first_with_causes_under_their_rows() -> None:
    assert whole_table(mixed(), 120) == TABLE


NOISY = Pairs((1e-4, 2e-4) * 13, (2e-4, 1e-4) * 13)
UNQUIET: dict[str, GateReport] = {
    "inconclusive": report(
        regressed("a/x[n=1]"),
        regressed("a/x[n=2]"),
        unchanged("a/x[n=3]"),
        sentinels={"copy/torch[n=1]": NOISY},
    ),
    "contaminated": report(regressed("a/x[n=1]"), sentinels={"copy/torch[n=1]": WRONG}),
}


@pytest.mark.parametrize("outcome_", UNQUIET)
def test_slower_cases_of_a_gate_without_a_verdict_are_said_to_look_slower(outcome_: str) -> None:
    found = UNQUIET[outcome_]
    assert (found.outcome, exit_code(found)) == (outcome_, 4)
    text = render_gate(found, GateFormat.TABLE)
    cases = "2 cases look" if outcome_ == "inconclusive" else "1 case looks"
    first, second = text.splitlines()[:2]
    assert f"{first} {second.strip()}".startswith(
        f"{outcome_.upper()}: {cases} slower, but the machine was not quiet"
    )
    assert "no verdict" in first + second
    for form in GateFormat:
        if form != GateFormat.JSON:
            text = render_gate(found, form)
            assert "REGRESSED" not in text
            assert "looks slower" in text
    assert set(tags_by_case(found).values()) <= {"", "error"}


def test_two_hosts_are_the_reason_why_slower_cases_are_no_verdict() -> None:
    found = report(regressed("a/x[n=1]"), advisory="the runs are of two hosts")
    assert render_gate(found, GateFormat.TABLE).splitlines()[0] == (
        "INCONCLUSIVE: 1 case looks slower, but the runs are of two hosts: no verdict"
    )


def test_an_unclear_case_says_which_slowdown_could_be_in_it() -> None:
    found = report(unchanged("a/x[n=1]"), inconclusive("a/x[n=2]", 0.03))
    assert found.outcome == "passed"
    assert "not clear: a slowdown of 5.00 % is possible" in whole_table(found)


def test_the_times_of_both_sides_and_the_change_agree() -> None:
    """Medians of sides that scatter differ by more than the mean over pairs, or by less."""
    for case in measured({"a/x[n=1]": 0.05, "a/x[n=2]": 0.0}).cases:
        assert case.base_s is not None
        assert case.head_s is not None
        assert case.head_s / case.base_s - 1 == pytest.approx(case.judged.change)


def test_hundreds_of_unchanged_cases_do_not_drown_a_regression() -> None:
    cases = [unchanged(f"a/x[n={n}]") for n in range(1000, 1500)]
    found = report(*cases, regressed("a/x[n=7]"))
    lines = render_gate(found, GateFormat.TABLE).splitlines()
    assert lines[4].startswith("REGRESSED  a/x n=7 ")
    assert sum(line.startswith("unchanged ") for line in lines) == 0
    assert "and 500 more: 500 unchanged; -v shows all" in lines
    assert len(lines) < 20
    every = whole_table(found).splitlines()
    assert every[4].startswith("REGRESSED")
    assert sum(line.startswith("unchanged ") for line in every) == 500


LONG_NAME = (
    "attention/triton_flash[batch=2,heads=16,gqa=1,seq={},kv=0,head_dim={},causal=no,dtype=bf16]"
)
FORTY = [LONG_NAME.format(2**i, dim) for i in range(7, 17) for dim in (64, 80, 96, 128)]
REMARKS: dict[str, Any] = {
    "notes": tuple(f"torch is {i} on the base and {'x' * 90} on the head" for i in range(9)),
    "left_out": {name: "skipped: not supported" for name in FORTY[:9]},
    "discarded": tuple(DiscardedPair(i, "head: the clock was held down") for i in range(9)),
    "calibration": "0 of 6 real gates of unchanged code regressed here " * 20,
    "earlier": "regressed",
    "overruled": "the host was rebooted " * 20,
}


@pytest.mark.parametrize("slower", [0, 1, 5, 40])
@pytest.mark.parametrize("remarks", [{}, REMARKS], ids=["alone", "with remarks"])
def test_what_a_gate_of_forty_cases_prints_fits_a_screen(
    slower: int, remarks: dict[str, Any]
) -> None:
    cause = Cause("more bytes", "bytes 268 MB → 537 MB, " * 20)
    cases = [regressed(n, 0.02 + i / 100, cause=cause) for i, n in enumerate(FORTY[:slower])]
    found = report(*cases, *map(unchanged, FORTY[slower:]), **remarks)
    lines = render_gate(found, GateFormat.TABLE, screen=Screen(width=100)).splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 45
    rows = [line for line in lines if line.startswith("REGRESSED  ")]
    assert len(rows) >= min(slower, 3)
    names = [re.search(r"seq=\S+ head_dim=\d+ ", row) for row in rows]
    assert None not in names
    others = sum(int(n) for n in re.findall(r"^and (\d+) more: ", "\n".join(lines), re.MULTILINE))
    assert others + len(rows) == 40 or not rows
    assert any("-v shows all" in line for line in lines)


def test_a_gate_of_forty_regressions_shows_as_many_as_fit() -> None:
    found = report(*(regressed(name, 0.05) for name in FORTY))
    lines = render_gate(found, GateFormat.TABLE, screen=Screen(width=100)).splitlines()
    assert sum(line.startswith("REGRESSED  ") for line in lines) >= 14


def test_a_terminal_of_ascii_gets_ascii() -> None:
    screen = Screen(ascii=True)
    for form in GateFormat:
        assert render_gate(mixed(), form, screen=screen).isascii()
    text = render_gate(hostile(), GateFormat.JSON, screen=screen)
    assert json.loads(text) == json.loads(encoded(hostile()))


def test_hundreds_of_remarks_are_counted() -> None:
    left_out = {f"a/x[n={n}]": "not supported" for n in range(300)}
    found = report(unchanged("b/x[n=1]"), left_out=left_out)
    assert whole_table(found).count(" left out: not supported") == 12
    assert "and 288 more cases left out; verdict.json has all" in whole_table(found)
    brief = render_gate(found, GateFormat.TABLE)
    assert brief.count(" left out: not supported") == 2
    assert "and 298 more cases left out; verdict.json has all" in brief


def test_the_noisiest_case_comes_first_among_the_inconclusive() -> None:
    cases = [
        inconclusive("a/x[n=5]", 0.02),
        inconclusive("a/x[n=6]", None),
        inconclusive("a/x[n=7]", 0.5),
    ]
    text = whole_table(report(*cases))
    assert [text.index(f"a/x n={n} ") for n in (6, 7, 5)] == sorted(
        text.index(f"a/x n={n} ") for n in (5, 6, 7)
    )


def test_a_slowdown_beyond_any_scale_is_written_short() -> None:
    text = render_gate(report(regressed("a/x[n=1]", 1e200)), GateFormat.TABLE)
    assert "+1e+202 %" in text
