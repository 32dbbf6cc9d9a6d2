"""The JUnit document and the annotations of a gate agree with its exit code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from synthetic_report import (
    COMMIT,
    OUTCOMES,
    check_junit,
    every_outcome,
    hostile,
    improved,
    inconclusive,
    mixed,
    regressed,
    report,
    tags_by_case,
    unchanged,
)

from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.verdict import GateReport, exit_code


@every_outcome
def test_junit_is_green_just_where_the_gate_passed(outcome: GateReport) -> None:
    suite = check_junit(render_gate(outcome, GateFormat.JUNIT))
    bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    assert (bad == 0) == (exit_code(outcome) == 0)
    assert int(suite.attrib["tests"]) > 0


def test_junit_has_a_tag_for_each_verdict() -> None:
    assert tags_by_case(mixed()) == {
        "the gate as a whole": "",
        "matmul/torch[m=512,n=512,k=512,dtype=bf16]": "",
        "matmul/torch[m=1024,n=1024,k=1024,dtype=bf16]": "failure",
        "matmul/torch[m=2048,n=2048,k=2048,dtype=bf16]": "",
        "softmax/fused[n=64,dtype=bf16]": "error",
        "softmax/fused[n=128,dtype=bf16]": "error",
    }
    assert tags_by_case(OUTCOMES["passed"])["a/x[n=3]"] == "skipped"
    for name in ("contaminated", "incomplete"):
        assert tags_by_case(OUTCOMES[name])["the gate as a whole"] == "error"


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


@every_outcome
def test_annotations_begin_with_the_outcome(outcome: GateReport) -> None:
    level, title, data = next(parsed(render_gate(outcome, GateFormat.GITHUB)))
    assert title == f"gpuperf gate: {outcome.outcome}"
    assert (level == "notice") == (exit_code(outcome) == 0)
    assert data.startswith(outcome.outcome.upper())


def test_annotations_are_errors_warnings_and_notices_by_verdict() -> None:
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
