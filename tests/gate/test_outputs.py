"""What a gate says, in every form: the same outcome in all, within limits, and nothing obeyed."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
import typer
from markdown_it import MarkdownIt
from measured import ROOT
from typer.testing import CliRunner

from gpuperf.ci.command import ci
from gpuperf.ci.workflow import github_workflow, source_of, workflow_files
from gpuperf.errors import UsageError
from gpuperf.gate.chart import draw_pairs
from gpuperf.gate.evidence import DiscardedPair
from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.markdown import COMMENT_LIMIT, MARKER, SUMMARY_LIMIT
from gpuperf.gate.rule import Evidence, Judged, Pairs, Rule, Verdict, judge, suspicious
from gpuperf.gate.stored import Sets, judge_stored
from gpuperf.gate.verdict import (
    CaseVerdict,
    Cause,
    GateReport,
    Outcome,
    SideSummary,
    conclude,
    exit_code,
    middles,
    read_report,
    write_report,
)
from gpuperf.model.contract import Contract
from gpuperf.model.workload import Case
from gpuperf.show.axes import Names, whole_names
from gpuperf.show.screen import Screen

RULE = Rule(resamples=9999)
COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
HOSTILE = (
    "a|b`c`<b>d</b> <script>x</script> <!-- e --> @octocat @org/team #12 GH-7 https://evil.example "
    "$x$ ]]> ../../etc/passwd \x1b[31mred\x1b[0m \x9b1m \x00 \ufffe \u202egnp\u200b\n"
    "::error::fake\n##[stop-commands]x \r%0A,: [link](javascript:x) ![i](y) 🔥 é \u2028 - # 1. end"
)


def report(*cases: CaseVerdict, **changes: Any) -> GateReport:
    """A gate with these cases and what follows from them."""
    facts: dict[str, Any] = {
        "id": "20260101-gate-ci",
        "created": "2026-01-01T12:00:00+00:00",
        "gpuperf": "0.1.0",
        "kind": "ab",
        "base": SideSummary("main (0123456789)", "0123456789abcdef"),
        "head": SideSummary("topic (fedcba9876)", COMMIT),
        "device": "NVIDIA H200",
        "suite": "ci",
        "contract": Contract("blocked"),
        "rule": RULE,
        "cases": cases,
        "pairs": 26,
        "took_s": 300.0,
    }
    return conclude(GateReport(**{**facts, **changes}))


def regressed(name: str, change: float = 0.05, **changes: Any) -> CaseVerdict:
    judged = Judged("REGRESSED", change, change - 0.004, change + 0.004, 1e-6, 2e-5, 0.015)
    cause = Cause("more bytes", "bytes 268 MB → 537 MB, launches 1 → 2")
    facts: dict[str, Any] = {"base_s": 1e-4, "head_s": 1e-4 * (1 + change), "cause": cause}
    return CaseVerdict(name, judged, **{**facts, **changes})


def unchanged(name: str, change: float = 0.0) -> CaseVerdict:
    judged = Judged("UNCHANGED", change, change - 0.002, change + 0.002, 1.0, 1.0, 0.014)
    return CaseVerdict(name, judged, base_s=1e-4, head_s=1e-4)


def inconclusive(name: str, detectable: float | None = 0.03) -> CaseVerdict:
    return CaseVerdict(name, Judged("INCONCLUSIVE", 0.01, -0.03, 0.05, 0.5, 0.6, detectable))


def missing(name: str, reason: str = "head: error: RuntimeError") -> CaseVerdict:
    return CaseVerdict(name, Judged("NOT_COMPARABLE", reason=reason))


def improved(name: str) -> CaseVerdict:
    return CaseVerdict(
        name, Judged("IMPROVED", -0.1, -0.11, -0.09, 1.0, 1.0, 0.014), base_s=1e-4, head_s=9e-5
    )


def pairs_of(count: int, slower: float = 0.0, scatter: float = 0.003, seed: int = 0) -> Pairs:
    drawn = random.Random(seed)
    base = tuple(1e-4 * math.exp(drawn.gauss(0, scatter)) for _ in range(count))
    head = tuple(1e-4 * (1 + slower) * math.exp(drawn.gauss(0, scatter)) for _ in range(count))
    return Pairs(base, head)


def measured(slowdowns: dict[str, float], **changes: Any) -> GateReport:
    """A gate of real pairs, judged by the rule."""
    screens = {name: pairs_of(6, s, seed=i) for i, (name, s) in enumerate(slowdowns.items())}
    sent_on = suspicious(screens, RULE)
    evidence = {
        name: Evidence(screens[name], pairs_of(20, s, seed=1000 + i) if name in sent_on else None)
        for i, (name, s) in enumerate(slowdowns.items())
    }
    judged = judge(evidence, RULE)
    cases = [
        CaseVerdict(n, judged[n], evidence[n], None, *middles(evidence[n], None)) for n in slowdowns
    ]
    return report(*cases, **{"sentinels": {"copy/torch[n=1]": pairs_of(26, seed=9)}, **changes})


WRONG = pairs_of(26, 0.05, seed=5)
OUTCOMES: dict[Outcome, GateReport] = {
    "passed": report(unchanged("a/x[n=1]"), unchanged("a/x[n=2]"), inconclusive("a/x[n=3]")),
    "regressed": report(unchanged("a/x[n=1]"), regressed("a/x[n=2]")),
    "not comparable": report(unchanged("a/x[n=1]"), missing("a/x[n=2]")),
    "inconclusive": report(unchanged("a/x[n=1]"), inconclusive("a/x[n=2]", 0.4)),
    "contaminated": report(unchanged("a/x[n=1]"), sentinels={"copy/torch[n=1]": WRONG}),
    "incomplete": report(unchanged("a/x[n=1]"), ended="it was interrupted"),
}
# These fail, too, and no case of theirs says why.
OTHERS = {
    "no case": report(),
    "one of two is wrong": report(unchanged("a/x[n=1]"), earlier="regressed"),
    "nothing measured to the end": report(ended="the gate was killed"),
}
EVERY = {**OUTCOMES, **OTHERS}


@pytest.fixture(params=EVERY)
def outcome(request: pytest.FixtureRequest) -> GateReport:
    return EVERY[request.param]


def test_the_examples_have_every_outcome() -> None:
    assert set(OUTCOMES) == set(get_args(Outcome))
    assert all(found.outcome == name for name, found in OUTCOMES.items())


@pytest.mark.parametrize("format", list(GateFormat))
def test_every_form_tells_the_outcome_and_ends_with_a_newline(
    outcome: GateReport, format: GateFormat
) -> None:
    text = render_gate(outcome, format)
    assert text.endswith("\n")
    assert outcome.outcome in text.lower()
    assert outcome.device in text


# Names


def test_names_leave_out_what_all_cases_of_an_operation_share() -> None:
    cases = [
        "matmul/torch[m=512,n=512,k=512,dtype=bf16]",
        "matmul/torch[m=16,n=4096,k=4096,dtype=bf16]",
        "matmul/triton[m=512,n=512,k=512,dtype=bf16,tile=64x128x64]",
        "matmul/triton[m=2048,n=2048,k=2048,dtype=bf16,tile=128x256x64]",
        "sincos/triton[n=16777216,dtype=fp32]",
        "attention/sdpa[batch=2,heads=16,gqa=1,seq=1024,causal=no,dtype=bf16]",
    ]
    names = Names(cases)
    assert [names.of(case) for case in cases] == [
        "matmul/torch m=n=k=512",
        "matmul/torch m=16 n=k=4096",
        "matmul/triton m=n=k=512 tile=64x128x64",
        "matmul/triton m=n=k=2048 tile=128x256x64",
        "sincos/triton n=16M",
        "attention/sdpa batch=2 heads=16 seq=1024",
    ]
    assert names.fixed == {
        "matmul": "dtype=bf16",
        "sincos": "dtype=fp32",
        "attention": "gqa=1, causal=no, dtype=bf16",
    }


def test_a_case_is_named_by_its_fields_where_a_verdict_has_them(tmp_path: Path) -> None:
    """A value with a comma makes an id that cannot be parsed."""
    points: list[dict[str, Any]] = [{"shape": "2,3", "n": n, "dtype": "bf16"} for n in (7, 8)]
    fields = [Case("a", "x", point) for point in points]
    found = report(*(replace(unchanged(case.id), fields=case) for case in fields))
    write_report(found, tmp_path / "verdict.json")
    read = read_report(tmp_path / "verdict.json")
    assert read == found
    assert re.findall(r"a/x\S* \S+", whole_table(read))[:2] == ["a/x n=7", "a/x n=8"]
    older = replace(found, cases=tuple(replace(case, fields=None) for case in found.cases))
    assert "a/x[shape=2,3,n=7,dtype=bf16]" in whole_table(older)


def test_a_verdict_whose_fields_are_those_of_another_case_is_refused(tmp_path: Path) -> None:
    other = replace(unchanged("a/x[n=7]"), fields=Case("a", "x", {"n": 8}))
    write_report(report(other), tmp_path / "verdict.json")
    with pytest.raises(UsageError, match=r"a/x\[n=7\] has the fields of a/x\[n=8\]"):
        read_report(tmp_path / "verdict.json")


def test_a_reason_names_a_case_as_the_table_does() -> None:
    names = Names(["a/x[m=1,n=7,dtype=bf16]", "a/x[m=1,n=8,dtype=bf16]"])
    assert names.replace_ids("a/x[m=1,n=8,dtype=bf16] is slower") == "a/x n=8 is slower"


@pytest.mark.parametrize(
    "ids",
    [
        ["a\x00", "a", "a\u200b", ""],
        ["x/y[n=1]", "x/y[n=1]\n", "x/y n=1", "x/y[n=1,n=1]"],
        [f"{'x' * 10_000}{i}{'y' * 10_000}" for i in range(50)],
        ["x (2)", "x", "x\x00", "x\x01"],
        ["a/b[", "a/b]", "a/b[n]", "a/b[=1]", "a/b[]", "[n=1]", "a/b[n=1][m=2]"],
    ],
)
def test_no_two_cases_are_called_alike_whatever_they_are_called(ids: list[str]) -> None:
    for named in (Names(ids, 60), whole_names(ids, 60)):
        found = [named.of(case) if isinstance(named, Names) else named[case] for case in ids]
        assert len(set(found)) == len(ids)
        assert all(0 < len(name) <= 64 and name.isprintable() for name in found)


def test_five_thousand_long_names_take_no_time() -> None:
    import time

    began = time.process_time()
    Names([f"{'x' * 9000}{i}{'y' * 1000}" for i in range(5000)])
    assert time.process_time() - began < 20


# The table

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
6 pairs of all cases, 20 fresh ones of the suspicious; regressed where slower than 1 %, at 0.01 over all cases; seed 0
blocked timer, cold cache, burst (10 ms idle before each sample), randn data
base and head: geometric mean over the processes judged; change: head over base, less 1, with its 95 % interval; q: rate
  of false alarms among the cases called slower, if this one is too
detectable: the slowdown that is detected with a probability of 0.95; the target is 10 % in every case
the same in all cases, and left out of their names: matmul, softmax: dtype=bf16
gate 20260101-gate-ci, 2026-01-01T12:00:00+00:00, gpuperf 0.1.0
"""  # noqa: E501


def mixed() -> GateReport:
    same = ("same kernels, same launch configuration on both sides",)
    return report(
        unchanged("matmul/torch[m=512,n=512,k=512,dtype=bf16]", 0.001),
        regressed("matmul/torch[m=1024,n=1024,k=1024,dtype=bf16]", owner="@org/matmul", notes=same),
        improved("matmul/torch[m=2048,n=2048,k=2048,dtype=bf16]"),
        missing("softmax/fused[n=64,dtype=bf16]"),
        inconclusive("softmax/fused[n=128,dtype=bf16]", 0.4),
        notes=("torch is 2.11 on the base and 2.12 on the head",),
        discarded=(DiscardedPair(3, "head: other processes had a context on the GPU: 1"),),
    )


def whole_table(found: GateReport, width: int = 200) -> str:
    return render_gate(found, GateFormat.TABLE, verbose=True, screen=Screen(width=width))


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
        f"{outcome_.upper()}: {cases} slower beyond doubt, but the machine was not quiet"
    )
    assert "no verdict" in first + second
    for form in GateFormat:
        if form != GateFormat.JSON:
            told = render_gate(found, form)
            assert "REGRESSED" not in told
            assert "looks slower" in told
    assert set(told_of(found).values()) <= {"", "error"}


def test_two_hosts_are_the_reason_why_slower_cases_are_no_verdict() -> None:
    found = report(regressed("a/x[n=1]"), advisory="the runs are of two hosts")
    assert render_gate(found, GateFormat.TABLE).splitlines()[0] == (
        "INCONCLUSIVE: 1 case looks slower beyond doubt, but the runs are of two hosts: no verdict"
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
    assert json.loads(text) == json.loads(_encoded(hostile()))


def test_hundreds_of_remarks_are_counted() -> None:
    left_out = {f"a/x[n={n}]": "not supported" for n in range(300)}
    found = report(unchanged("b/x[n=1]"), left_out=left_out)
    assert whole_table(found).count(" left out: not supported") == 12
    assert "and 288 more cases left out; verdict.json has all" in whole_table(found)
    brief = render_gate(found, GateFormat.TABLE)
    assert brief.count(" left out: not supported") == 2
    assert "and 298 more cases left out; verdict.json has all" in brief


def test_the_noisiest_case_comes_first_among_those_that_tell_nothing() -> None:
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


# What strangers wrote


def hostile() -> GateReport:
    cause = Cause(HOSTILE, HOSTILE, {HOSTILE: (HOSTILE, HOSTILE)})
    return report(
        regressed(HOSTILE, cause=cause, owner=HOSTILE, notes=(HOSTILE,)),
        regressed(f"op/{HOSTILE}[n=1,{HOSTILE}=2]", cause=cause),
        regressed(f"op/x[n={HOSTILE}]", owner="@octocat please"),
        missing("../../x[n=1]", HOSTILE),
        inconclusive("🔥" * 3000, None),
        device=HOSTILE,
        suite=HOSTILE,
        id=HOSTILE,
        created=HOSTILE,
        gpuperf=HOSTILE,
        base=SideSummary(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, HOSTILE),
        notes=(HOSTILE, "::error::fake", "- x", "1. x", "=== x"),
        left_out={HOSTILE: HOSTILE},
        discarded=(DiscardedPair(1, HOSTILE),),
        calibration=HOSTILE,
        earlier=HOSTILE,
        overruled=HOSTILE,
        ended=HOSTILE,
        sentinels={HOSTILE: pairs_of(26)},
    )


@pytest.mark.parametrize("format", list(GateFormat))
def test_no_form_holds_what_is_invisible_or_steers_a_terminal(format: GateFormat) -> None:
    for line in render_gate(hostile(), format).split("\n"):
        assert line.isprintable(), repr(line)


@pytest.mark.parametrize("format", [f for f in GateFormat if f != GateFormat.GITHUB])
def test_no_form_holds_what_github_takes_for_a_command_in_a_log(format: GateFormat) -> None:
    for line in render_gate(hostile(), format).split("\n"):
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_json_is_the_verdict_itself() -> None:
    for found in (hostile(), mixed()):
        assert json.loads(render_gate(found, GateFormat.JSON)) == json.loads(_encoded(found))


def _encoded(found: GateReport) -> bytes:
    from gpuperf.model.codec import encode

    return encode(found)


# Markdown


def html_of(text: str) -> str:
    """As GitHub renders it, but for its own filters: tables are on, HTML passes."""
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)


@pytest.mark.parametrize("format", [GateFormat.MD, GateFormat.COMMENT])
def test_markdown_has_no_markup_but_its_own(format: GateFormat) -> None:
    html = html_of(render_gate(hostile(), format))
    tags = set(re.findall(r"</?([a-zA-Z][a-zA-Z0-9]*)", html))
    assert tags <= {
        "h3",
        "p",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "strong",
        "ul",
        "li",
        "details",
        "summary",
    }
    assert "&lt;b&gt;d&lt;/b&gt;" in html
    assert "javascript:" not in "".join(re.findall(r"<[^!>]*>", html))


@pytest.mark.parametrize("format", [GateFormat.MD, GateFormat.COMMENT])
def test_every_row_of_markdown_has_eight_cells(format: GateFormat) -> None:
    html = html_of(render_gate(hostile(), format))
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    assert len(rows) >= 5
    assert {row.count("<td") + row.count("<th") - row.count("<thead") for row in rows} == {8}


def mentions(text: str) -> list[str]:
    return re.findall(r"@[A-Za-z0-9][\w/-]*", text)


@pytest.mark.parametrize("format", [GateFormat.MD, GateFormat.COMMENT])
def test_no_stranger_is_mentioned_and_nothing_is_referred_to(format: GateFormat) -> None:
    text = render_gate(hostile(), format)
    assert mentions(text) == []
    assert not re.search(r"#\d|GH-\d", text)
    assert not re.search(r"https?:", text)


def test_the_owner_of_what_regressed_is_mentioned_once_and_no_other() -> None:
    found = report(
        regressed("a/x[n=1]", owner="@org/kernels"),
        regressed("a/x[n=2]", owner="@org/kernels"),
        regressed("a/x[n=3]", owner="@some-one"),
        regressed("a/x[n=4]", owner="@a b"),
        regressed("a/x[n=5]", owner="mail@example.com"),
        replace(missing("a/x[n=6]"), owner="@no"),
        replace(unchanged("a/x[n=7]"), owner="@nobody"),
    )
    assert mentions(render_gate(found, GateFormat.COMMENT)) == ["@org/kernels", "@some-one"]


def test_at_most_twenty_owners_are_mentioned() -> None:
    found = report(*(regressed(f"a/x[n={n}]", owner=f"@owner{n}") for n in range(50)))
    text = render_gate(found, GateFormat.COMMENT)
    assert len(mentions(text)) == 20
    assert "and 30 more" in text


def test_a_comment_can_be_found_again() -> None:
    assert render_gate(mixed(), GateFormat.COMMENT).startswith(MARKER)
    assert MARKER not in render_gate(hostile(), GateFormat.COMMENT)[len(MARKER) :]


def test_a_comment_leaves_out_what_nobody_must_look_at() -> None:
    text = render_gate(mixed(), GateFormat.COMMENT)
    assert "m=n=k=512" not in text
    assert "1 more are not shown: 1 unchanged" in text
    assert text.index("m=n=k=1024") < text.index("n=64") < text.index("m=n=k=2048")
    assert "**more bytes**: bytes 268 MB → 537 MB" in text


LONG = {
    "ascii": "kernel_" * 1400,
    "multi-byte": "カーネル🔥" * 2000,
    "markup": "<|`@a#1" * 1400,
    "short": "",
}


@pytest.mark.parametrize("kind", LONG)
def test_markdown_keeps_its_limits_at_five_thousand_regressions(kind: str) -> None:
    long = LONG[kind]
    cause = Cause("more bytes", long)
    names = [f"{long}{i}/x[n={i}]" if i % 2 else f"op/{long}[n={i}]" for i in range(5000)]
    cases = [
        regressed(n, 0.1 + i / 1e5, cause=cause, owner=f"@o{i}", notes=(long,) * 3)
        for i, n in enumerate(names)
    ]
    found = report(
        *cases,
        notes=(long,) * 3000,
        left_out=dict.fromkeys(names, long),
        device=long,
        base=SideSummary(long),
        calibration=long,
    )
    for form, limit in ((GateFormat.MD, SUMMARY_LIMIT), (GateFormat.COMMENT, COMMENT_LIMIT)):
        text = render_gate(found, form)
        assert len(text.encode()) <= limit
        rows = [line for line in text.splitlines() if line.startswith("| **REGRESSED**")]
        left = re.search(r"^([\d,]+) more are not shown: ([\d,]+) regressed; ", text, re.MULTILINE)
        shown = 5000 - (int(left[1].replace(",", "")) if left else 0)
        assert len(rows) == shown >= 40
        assert all(re.search(r"\| \+\d+\.\d\d % .* 1.50 % \|$", row) for row in rows)
        worst = [float(re.findall(r"\| \+(\d+\.\d\d) % \|", row)[0]) for row in rows]
        assert worst == sorted(worst, reverse=True)
        assert worst[0] == 15.0
        assert text.rstrip().endswith("</details>")


# JUnit


def check_junit(text: str) -> ElementTree.Element:
    """The suite of a document that both schemas in use take: Ant's and Jenkins'."""
    root = ElementTree.fromstring(text)
    assert (root.tag, root.attrib, len(root)) == ("testsuites", {}, 1)
    suite = root[0]
    assert set(suite.attrib) == {
        "name",
        "package",
        "id",
        "timestamp",
        "hostname",
        "tests",
        "failures",
        "errors",
        "skipped",
        "time",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
    assert re.fullmatch(r"\d+(\.\d+)?", suite.attrib["time"])
    tags = [child.tag for child in suite]
    cases = suite.findall("testcase")
    assert tags == ["properties", *["testcase"] * len(cases), "system-out", "system-err"]
    for found in suite[0]:
        assert (found.tag, set(found.attrib)) == ("property", {"name", "value"})
        assert found.attrib["name"].strip()
    for case in cases:
        check_case(case)
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert int(suite.attrib[name]) == sum(case.find(tag) is not None for case in cases)
    assert int(suite.attrib["tests"]) == len(cases) == len({c.attrib["name"] for c in cases})
    return suite


def check_case(case: ElementTree.Element) -> None:
    assert set(case.attrib) == {"classname", "name", "time"}
    assert case.attrib["name"].strip()
    assert re.fullmatch(r"\d+(\.\d+)?", case.attrib["time"])
    assert len(case) <= 1
    for told in case:
        wanted = {"message"} if told.tag == "skipped" else {"message", "type"}
        assert told.tag in ("skipped", "error", "failure")
        assert set(told.attrib) == wanted
        assert len(told) == 0
        assert told.attrib["message"]


def test_junit_is_green_just_where_the_gate_passed(outcome: GateReport) -> None:
    suite = check_junit(render_gate(outcome, GateFormat.JUNIT))
    bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert (bad == 0) == (exit_code(outcome) == 0)
    assert int(suite.attrib["tests"]) > 0


def told_of(found: GateReport) -> dict[str, str]:
    """By name what a test case holds: `failure`, `error`, `skipped`, or nothing."""
    suite = check_junit(render_gate(found, GateFormat.JUNIT))
    return {c.attrib["name"]: c[0].tag if len(c) else "" for c in suite.findall("testcase")}


def test_junit_tells_each_verdict_in_its_own_way() -> None:
    assert told_of(mixed()) == {
        "the gate as a whole": "",
        "matmul/torch[m=512,n=512,k=512,dtype=bf16]": "",
        "matmul/torch[m=1024,n=1024,k=1024,dtype=bf16]": "failure",
        "matmul/torch[m=2048,n=2048,k=2048,dtype=bf16]": "",
        "softmax/fused[n=64,dtype=bf16]": "error",
        "softmax/fused[n=128,dtype=bf16]": "error",
    }
    assert told_of(OUTCOMES["passed"])["a/x[n=3]"] == "skipped"
    for name in ("contaminated", "incomplete"):
        assert told_of(OUTCOMES[name])["the gate as a whole"] == "error"


def test_junit_holds_the_cause_the_times_and_the_conditions() -> None:
    suite = check_junit(render_gate(mixed(), GateFormat.JUNIT))
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.attrib["type"] == "more bytes"
    assert failure.attrib["message"].startswith("100.0 µs → 105.0 µs, +5.00 % (+4.60 … +5.40 %)")
    assert "bytes 268 MB → 537 MB" in (failure.text or "")
    assert suite.attrib["time"] == "300.000000000"
    assert suite.findall("testcase")[2].attrib["time"] == "0.000105000"
    properties = {p.attrib["name"]: p.attrib["value"] for p in suite[0]}
    assert properties["head.commit"] == COMMIT
    assert properties["device"] == "NVIDIA H200"
    assert properties["rule.margin"] == "0.01"
    assert properties["outcome"] == "regressed"


def test_junit_takes_hostile_names_and_times() -> None:
    suite = check_junit(render_gate(hostile(), GateFormat.JUNIT))
    assert any("<script>x</script>" in c.attrib["name"] for c in suite.findall("testcase"))
    odd = [replace(unchanged(f"a/x[n={i}]"), head_s=s) for i, s in enumerate((-1.0, 1e300, None))]
    check_junit(
        render_gate(report(*odd, took_s=-5.0, created="9999-99-99T99:99:99"), GateFormat.JUNIT)
    )


# Annotations


def parsed(text: str) -> Iterator[tuple[str, str, str]]:
    """Level, title and message, as GitHub's runner reads a line."""
    for line in text.splitlines():
        head, _, data = line.removeprefix("::").partition("::")
        level, _, properties = head.partition(" ")
        assert line.startswith("::")
        assert level in ("error", "warning", "notice")
        pairs = [part.split("=", 1) for part in properties.split(",")]
        assert [name for name, _ in pairs] == ["title"]
        title = pairs[0][1]
        for token, mark in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            title = title.replace(token, mark)
        for token, mark in (("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
            data = data.replace(token, mark)
        yield level, title, data


def test_annotations_begin_with_the_outcome(outcome: GateReport) -> None:
    level, title, data = next(parsed(render_gate(outcome, GateFormat.GITHUB)))
    assert title == f"gpuperf gate: {outcome.outcome}"
    assert (level == "notice") == (exit_code(outcome) == 0)
    assert data.startswith(outcome.outcome.upper())


def test_annotations_tell_cases_by_their_weight() -> None:
    found = list(parsed(render_gate(mixed(), GateFormat.GITHUB)))
    assert [(level, title) for level, title, _ in found] == [
        ("error", "gpuperf gate: regressed"),
        ("error", "regressed: matmul/torch m=n=k=1024"),
        ("error", "not comparable: softmax/fused n=64"),
        ("warning", "inconclusive: softmax/fused n=128"),
        ("notice", "improved: matmul/torch m=n=k=2048"),
    ]
    assert found[1][2].splitlines()[:2] == [
        "100.0 µs → 105.0 µs, +5.00 % (+4.60 … +5.40 %), q 2e-05",
        "more bytes: bytes 268 MB → 537 MB, launches 1 → 2",
    ]


def test_annotations_are_ten_of_each_type_and_count_the_rest() -> None:
    cases = [regressed(f"a/x[n={n}]", n / 1000) for n in range(100, 200)]
    cases += [inconclusive(f"b/x[n={n}]", None) for n in range(10)]
    cases += [improved(f"c/x[n={n}]") for n in range(11)]
    found = list(parsed(render_gate(report(*cases), GateFormat.GITHUB)))
    assert {
        level: sum(f[0] == level for f in found) for level in ("error", "warning", "notice")
    } == {"error": 10, "warning": 10, "notice": 10}
    assert found[1][1] == "regressed: a/x n=199"
    assert found[9][1:] == ("92 more cases", "92 regressed: see the job's summary or verdict.json")
    assert found[-1][1] == "2 more cases"


def test_a_hostile_name_ends_no_annotation() -> None:
    found = list(parsed(render_gate(hostile(), GateFormat.GITHUB)))
    assert any("::error::fake ##[stop-commands]x" in data for _, _, data in found)


# The chart of pairs


def drawn(found: GateReport, folder: Path) -> str:
    """The words of the chart, as an SVG has them."""
    draw_pairs(found, [folder / "pairs.svg", folder / "pairs.png"])
    assert (folder / "pairs.png").read_bytes().startswith(b"\x89PNG")
    svg = ElementTree.fromstring((folder / "pairs.svg").read_text(encoding="utf-8"))
    return "\n".join(
        "".join(text.itertext()) for text in svg.iter("{http://www.w3.org/2000/svg}text")
    )


def test_a_chart_names_its_cases_and_tells_their_verdicts(tmp_path: Path) -> None:
    found = measured({"a/x[n=7]": 0.05, "a/x[n=8]": 0.0, "a/x[n=9]": -0.1})
    words = drawn(found, tmp_path).splitlines()
    assert [w for w in words if w.startswith(("a/x", "copy"))] == [
        "a/x n=7",
        "a/x n=9",
        "a/x n=8",
        "copy/torch",
    ]
    assert any(re.fullmatch(r"\+[45]\.\d\d %  regressed", word) for word in words)
    assert any(re.fullmatch(r"-1?[09]\.\d\d %  improved", word) for word in words)
    assert "Gate regressed: 1 regressed, 1 improved, 1 unchanged" in words
    assert "base main (0123456789), head topic (fedcba9876)" in words
    assert any(word.endswith("sentinel") for word in words)


def test_a_chart_shows_the_forty_worst_and_says_so(tmp_path: Path) -> None:
    found = measured({f"a/x[n={n}]": 0.0 if n > 102 else 0.05 for n in range(100, 160)})
    words = drawn(found, tmp_path)
    assert len(re.findall(r"a/x n=\d+$", words, re.MULTILINE)) == 40
    assert "the 40 worst of 60 cases" in words
    assert all(f"a/x n={n}\n" in words for n in (100, 101, 102))


def test_a_chart_of_stored_runs_has_their_processes(tmp_path: Path) -> None:
    one, other = pairs_of(8, 0.0), pairs_of(8, 0.06)
    sets = {"a/x[n=1]": Sets(one.base, other.head), "a/x[n=2]": Sets(one.base[:2], one.head[:3])}
    judged = judge_stored(sets, RULE)
    cases = [CaseVerdict(name, judged[name], None, sets[name]) for name in sets]
    words = drawn(report(*cases, kind="compare", pairs=0), tmp_path)
    assert "process of the base" in words
    assert "processes of two runs, not paired" in words


def test_a_chart_takes_hostile_names_and_odd_times(tmp_path: Path) -> None:
    odd = Pairs((1e-300, 1e-4, 0.0, -1.0, math.inf), (1e300, 1e-4, 1.0, 1.0, 1.0))
    cases = [
        replace(regressed(HOSTILE), evidence=Evidence(pairs_of(6))),
        replace(regressed("カーネル🔥" * 2000), evidence=Evidence(pairs_of(6))),
        replace(regressed("a/x[n=1]", 1e200), evidence=Evidence(odd, odd)),
        replace(regressed("a/x[n=2]", -2.0), evidence=Evidence(Pairs((), ()))),
        missing("a/x[n=3]"),
    ]
    steady = {f"{HOSTILE}{n}": pairs_of(1) for n in range(100)}
    drawn(report(*cases[:1], rule=Rule(floor_s=1e6), sentinels=steady), tmp_path)
    words = drawn(report(*cases, sentinels=steady, device=HOSTILE), tmp_path)
    assert "not comparable" in words
    assert all(line.isprintable() for line in words.split("\n"))


def test_a_chart_without_a_time_says_so_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no case has a time on both sides"):
        draw_pairs(report(missing("a/x[n=1]")), [tmp_path / "a.png"])
    with pytest.raises(UsageError, match=r"suffix '\.jpg'"):
        draw_pairs(measured({"a/x[n=1]": 0.0}), [tmp_path / "a.jpg"])
    assert not list(tmp_path.iterdir())


def test_the_same_report_gives_the_same_chart(tmp_path: Path) -> None:
    found = measured({"a/x[n=7]": 0.05, "a/x[n=8]": 0.0})
    draw_pairs(found, [tmp_path / "a.svg", tmp_path / "b.svg"])
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


# The workflow

GATE, REPORT = workflow_files().values()


def scripts(text: str) -> dict[str, str]:
    """Of each step with a `run: |`, by name, what the shell gets."""
    found = {}
    for step in re.split(r"^      - ", text, flags=re.MULTILINE)[1:]:
        name = re.match(r"name: (.*)", step)
        body = re.search(r"^ {8}run: (?:\|\n((?: {10}.*\n|\n)+)|(.*\n))", step, re.MULTILINE)
        if name and body:
            found[name[1]] = re.sub(r"^ {10}", "", body[1] or body[2], flags=re.MULTILINE)
    return found


def test_the_command_prints_both_files_under_their_paths() -> None:
    printed = run_ci().stdout
    assert printed == github_workflow()
    assert printed.count("# .github/workflows/gpuperf-gate.yml\n") == 1
    assert printed.count("# .github/workflows/gpuperf-report.yml\n") == 1


def test_what_is_printed_are_two_yaml_documents() -> None:
    documents = github_workflow().split("\n---\n")
    assert [
        d.startswith(f"# .github/workflows/{n}\n")
        for d, n in zip(documents, workflow_files(), strict=True)
    ] == [True, True]


def test_the_workflow_installs_gpuperf_from_where_it_can_be_had() -> None:
    """One that is installed from a folder names no source, since no runner has the folder."""
    assert "gpuperf==" not in github_workflow("")
    assert github_workflow("").count("GPUPERF: ${{ vars.GPUPERF }}\n") == 2
    known = github_workflow("git+https://host/gpuperf@0123")
    assert known.count("GPUPERF: ${{ vars.GPUPERF || 'git+https://host/gpuperf@0123' }}\n") == 2
    for text in (GATE, REPORT):
        assert ': "${GPUPERF:?' in text


@pytest.mark.parametrize(
    ("told", "source"),
    [
        (None, "gpuperf==9.8"),
        ('{"url": "file:///home/me/gpuperf", "dir_info": {}}', ""),
        (
            '{"url": "https://host/g.git", "vcs_info": {"vcs": "git", "commit_id": "01ab"}}',
            "git+https://host/g.git@01ab",
        ),
        ('{"url": "https://host/g-1.whl", "archive_info": {}}', "https://host/g-1.whl"),
        ('{"url": "https://host/\' }} x"}', ""),
        ("no json", ""),
    ],
)
def test_where_gpuperf_can_be_had_is_what_pip_noted(
    told: str | None, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "gpuperf-9.8.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuperf\nVersion: 9.8\n")
    if told is not None:
        (info / "direct_url.json").write_text(told)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert source_of("9.8") == source


def run_ci(*words: str) -> Any:
    app = typer.Typer()
    app.add_typer(ci, name="ci")
    return CliRunner().invoke(app, ["ci", "github", *words])


def test_the_command_writes_both_files_and_overwrites_none(tmp_path: Path) -> None:
    folder = tmp_path / ".github" / "workflows"
    assert run_ci("--out", str(folder)).exit_code == 0
    assert {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir()} == workflow_files()
    again = run_ci("--out", str(folder))
    assert isinstance(again.exception, UsageError)
    assert "gpuperf-gate.yml exists" in str(again.exception)


def test_the_workflow_is_plain_yaml_of_steps() -> None:
    for text in workflow_files().values():
        assert "\t" not in text
        assert all(len(re.findall("^ *", line)[0]) % 2 == 0 for line in text.split("\n"))
        for key in ("name: ", "on:\n", "permissions: {}\n", "jobs:\n"):
            assert len(re.findall(f"^{re.escape(key)}", text, re.MULTILINE)) == 1
        assert text.count("${{") == text.count("}}")
        assert "VERSION" not in text


def test_the_measuring_job_has_no_token_and_no_secret() -> None:
    assert "on:\n  pull_request:\n" in GATE
    assert "pull_request_target" not in GATE + REPORT
    assert "persist-credentials: false" in GATE
    assert "fetch-depth: 0" in GATE
    assert not re.search(r"github\.token|GITHUB_TOKEN|GH_TOKEN|secrets", GATE)
    assert re.findall(r"^    permissions:\n((?:      .*\n)+)", GATE, re.MULTILINE) == [
        "      contents: read\n"
    ]
    assert "if: always()\n        uses: actions/upload-artifact" in GATE


def test_the_reporting_job_has_none_of_the_changes_code() -> None:
    assert "workflow_run:" in REPORT
    assert f"workflows: [{re.findall('^name: (.*)', GATE, re.MULTILINE)[0]}]" in REPORT
    assert "actions/checkout" not in REPORT
    assert "git " not in REPORT
    with_token = [name for name in scripts(REPORT) if "gh api" in scripts(REPORT)[name]]
    assert REPORT.count("GH_TOKEN: ${{ github.token }}") == len(with_token) == 2


def test_no_script_holds_an_expression() -> None:
    found = {**scripts(GATE), **scripts(REPORT)}
    assert len(found) == 7
    for body in found.values():
        assert "${{" not in body
        assert body.startswith("set -euo pipefail\n") or body == 'exit "$CODE"\n'
        assert "make" not in body


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """An environment in which `gpuperf` and `python` are ours."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "gpuperf"
    command.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from gpuperf.app import main; main()' \"$@\"\n"
    )
    command.chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    return {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "HEAD_SHA": COMMIT,
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GATE_URL": "https://example.com/run/1",
        "PYTHONPATH": str(ROOT),
    }


def judged_by_the_workflow(tools: dict[str, str], folder: Path) -> tuple[int, str, str]:
    """The code that the reporting job ends with, its summary and its comment."""
    found = scripts(REPORT)
    subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", found["Judge it again"]],
        cwd=folder,
        env=tools,
        check=True,
    )
    code = (folder / "output").read_text().strip().removeprefix("code=")
    ended = subprocess.run(
        ["bash", "-c", found["Pass where the gate passed"]],
        env={**tools, "CODE": code},
        check=False,
    )
    return ended.returncode, (folder / "summary").read_text(), (folder / "comment.md").read_text()


bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@bash
@pytest.mark.parametrize(("slower", "wanted"), [(0.0, 0), (0.05, 1)])
def test_the_reporting_job_ends_as_the_gate_did(
    tools: dict[str, str], tmp_path: Path, slower: float, wanted: int
) -> None:
    found = measured({"a/x[n=7]": slower, "a/x[n=8]": 0.0})
    write_report(found, tmp_path / "gate" / "20260101" / "verdict.json")
    code, summary, comment = judged_by_the_workflow(tools, tmp_path)
    assert code == exit_code(found) == wanted
    assert summary == render_gate(found, GateFormat.MD)
    assert comment == render_gate(found, GateFormat.COMMENT)


@bash
@pytest.mark.parametrize("fault", ["missing", "two", "no json", "other commit", "tampered"])
def test_the_reporting_job_is_red_without_a_verdict_of_this_commit(
    tools: dict[str, str], tmp_path: Path, fault: str
) -> None:
    found = measured({"a/x[n=7]": 0.05, "a/x[n=8]": 0.0})
    files = [tmp_path / "gate" / name / "verdict.json" for name in ("one", "two")]
    if fault == "two":
        write_report(found, files[1])
    if fault == "other commit":
        found = replace(found, head=SideSummary("topic", "0" * 40))
    if fault == "tampered":
        passed = [replace(c, judged=replace(c.judged, verdict="UNCHANGED")) for c in found.cases]
        found = conclude(replace(found, cases=tuple(passed)))
        assert found.outcome == "passed"
    if fault != "missing":
        write_report(found, files[0])
    if fault == "no json":
        files[0].write_text("{")
    code, summary, comment = judged_by_the_workflow(tools, tmp_path)
    assert code == (2 if fault == "tampered" else 3)
    assert comment == summary
    assert comment.startswith(f"{MARKER}\n### ⚠️ gpuperf gate: the")


def on_path(program: str) -> str | None:
    """Where *program* is, beside this interpreter or on the PATH."""
    folders = (str(Path(sys.executable).parent), os.environ["PATH"])
    return shutil.which(program, path=os.pathsep.join(folders))


SHELLCHECK = on_path("shellcheck")


@pytest.mark.skipif(SHELLCHECK is None, reason="needs shellcheck, which the extra `test` installs")
def test_the_scripts_pass_shellcheck() -> None:
    for name, body in {**scripts(GATE), **scripts(REPORT)}.items():
        done = subprocess.run(
            [SHELLCHECK, "--shell=bash", "-"],
            input=body,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout}"


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="needs actionlint on the PATH")
def test_the_workflow_passes_actionlint(tmp_path: Path) -> None:
    for name, text in workflow_files().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = [str(tmp_path / name) for name in workflow_files()]
    done = subprocess.run(["actionlint", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_written_verdict_reads_back_and_prints_alike(tmp_path: Path) -> None:
    write_report(mixed(), tmp_path / "verdict.json")
    again = read_report(tmp_path / "verdict.json")
    for form in GateFormat:
        assert render_gate(again, form) == render_gate(mixed(), form)


def verdicts(cases: Sequence[CaseVerdict]) -> set[Verdict]:
    return {case.judged.verdict for case in cases}


def test_the_mixed_example_has_every_verdict() -> None:
    assert verdicts(mixed().cases) == set(get_args(Verdict))
