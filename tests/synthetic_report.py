"""Build the reports of gates: one of every outcome, one of every verdict, one of hostile names."""

from __future__ import annotations

import math
import random
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuperf.gate.evidence import DiscardedPair
from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.rule import Evidence, Judged, Pairs, Rule, judge, suspicious
from gpuperf.gate.verdict import (
    CaseVerdict,
    Cause,
    GateReport,
    Outcome,
    SideSummary,
    conclude,
    middles,
)
from gpuperf.model.contract import Contract
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
    sent_on = suspicious({name: Evidence(screen) for name, screen in screens.items()}, RULE)
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


every_outcome = pytest.mark.parametrize("outcome", EVERY.values(), ids=EVERY)


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


def encoded(found: GateReport) -> bytes:
    from gpuperf.model.codec import encode

    return encode(found)


def check_junit(text: str) -> ElementTree.Element:
    """Return the suite of a document that is valid by both schemas in use, Ant's and Jenkins'."""
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
    for child in case:
        wanted = {"message"} if child.tag == "skipped" else {"message", "type"}
        assert child.tag in ("skipped", "error", "failure")
        assert set(child.attrib) == wanted
        assert len(child) == 0
        assert child.attrib["message"]


def tags_by_case(found: GateReport) -> dict[str, str]:
    """Return by name the tag in a test case: `failure`, `error`, `skipped`, or nothing."""
    suite = check_junit(render_gate(found, GateFormat.JUNIT))
    return {c.attrib["name"]: c[0].tag if len(c) else "" for c in suite.findall("testcase")}
