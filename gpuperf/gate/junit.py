"""Render a gate's report as JUnit XML, for programs that read test results.

Each case is a test case, named by its whole id, so that a server can follow it from gate to gate. A
regression is a failure, and a case without a verdict an error. One more test case stands for the
gate as a whole: it is an error if the gate did not pass for another reason than its cases.

The form conforms to both schemas in use: Apache Ant's (windyroad/JUnit-Schema) and Jenkins'
(jenkinsci/xunit-plugin, junit-10.xsd). The text is ASCII, which every terminal can write.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from xml.etree import ElementTree

from gpuperf.gate.verdict import CaseVerdict, GateReport, hides
from gpuperf.gate.wording import (
    WORDS,
    conditions,
    counts,
    figures,
    headline,
    names_of,
    reasons_of,
    remarks,
    suspected,
    words_of,
)
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import Names, whole_names

NAME = 1000  # characters of a case
TEXT = 2000  # characters of a message or a property
WHOLE = "the gate as a whole"
STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
EPOCH = "1970-01-01T00:00:00"


def render_junit(report: GateReport) -> str:
    """Return *report* as an XML document."""
    names = names_of(report, NAME)
    ids = whole_names((case.case for case in report.cases), NAME)
    cases = [_case(case, ids[case.case], report) for case in report.cases]
    red = any(child.tag in ("failure", "error") for case in cases for child in case)
    cases.insert(0, _whole(report, names, red))
    suite = ElementTree.Element("testsuite", _attributes(report, cases))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(report):
        ElementTree.SubElement(properties, "property", name=name, value=_text(value))
    suite.extend(cases)
    lines = [headline(report, names), counts(report.cases, words_of(report))]
    lines += [*remarks(report, names), *conditions(report, names)]
    ElementTree.SubElement(suite, "system-out").text = _lines(lines)
    ElementTree.SubElement(suite, "system-err")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    text = ElementTree.tostring(root).decode("ascii")
    # GitHub's runner executes this, anywhere in a line of a log, as a command.
    text = text.replace("##[", "#&#35;[")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _attributes(report: GateReport, cases: Sequence[ElementTree.Element]) -> dict[str, str]:
    def count(tag: str) -> str:
        return str(sum(case.find(tag) is not None for case in cases))

    return {
        "name": f"gpuperf gate {_text(report.suite)}",
        "package": "gpuperf",
        "id": "0",
        "timestamp": _stamp(report.created),
        "hostname": "localhost",
        "tests": str(len(cases)),
        "failures": count("failure"),
        "errors": count("error"),
        "skipped": count("skipped"),
        "time": _seconds(report.took_s),
    }


def _whole(report: GateReport, names: Names, red: bool) -> ElementTree.Element:
    """Return a test case for the gate as a whole, with an error if it did not pass and no case
    has an error or a failure (*red*), or if no case is the reason."""
    case = _testcase(report, WHOLE, None)
    own = report.outcome in ("contaminated", "incomplete") or suspected(report)
    if report.outcome != "passed" and (own or not red):
        text = headline(report, names)
        _add(case, "error", report.outcome, text, [text, *report.reasons[1:]])
    return case


def _case(case: CaseVerdict, name: str, report: GateReport) -> ElementTree.Element:
    """Return a test case for *case*: a failure if it regressed, an error without a verdict."""
    element, verdict = _testcase(report, name, case.head_s), case.judged.verdict
    lines = [line for line in (figures(case), *reasons_of(case, report)) if line]
    if case.owner:
        lines.append(f"owner {shorten(clean(case.owner), NAME)}")
    message = "; ".join(lines[:2]) or WORDS[verdict]
    if verdict == "REGRESSED" and suspected(report):
        _add(element, "error", words_of(report)[verdict], message, lines)
    elif verdict == "REGRESSED":
        _add(element, "failure", case.cause.kind if case.cause else WORDS[verdict], message, lines)
    elif verdict == "NOT_COMPARABLE" or hides(case, report.target):
        _add(element, "error", WORDS[verdict], message, lines)
    elif verdict == "INCONCLUSIVE":
        ElementTree.SubElement(element, "skipped", message=_text(f"inconclusive: {message}"))
    return element


def _testcase(report: GateReport, name: str, seconds: float | None) -> ElementTree.Element:
    group = f"gpuperf.gate.{_text(report.suite) or 'suite'}"
    return ElementTree.Element("testcase", classname=group, name=name, time=_seconds(seconds))


def _add(
    case: ElementTree.Element, tag: str, kind: str, message: str, lines: Sequence[str]
) -> None:
    element = ElementTree.SubElement(case, tag, type=_text(kind), message=_text(message))
    element.text = _lines(lines)


def _properties(report: GateReport) -> Iterator[tuple[str, object]]:
    """Yield the conditions of the gate by name: device, software, rule, contract, pairs."""
    yield "outcome", report.outcome
    yield "gate", report.id
    yield "kind", report.kind
    yield "gpuperf", report.gpuperf
    yield "device", report.device
    for label, side in (("base", report.base), ("head", report.head)):
        yield label, side.told
        yield f"{label}.commit", side.commit
        for name, value in side.soft.items():
            yield f"{label}.{_text(name)}", value
    for group, values in (("rule", vars(report.rule)), ("contract", vars(report.contract))):
        for name, value in values.items():
            yield f"{group}.{name}", value
    yield "pairs", report.pairs
    yield "pairs.discarded", len(report.discarded)
    yield "calibration", report.calibration or "none"


def _lines(texts: Sequence[str]) -> str:
    """Return *texts* as lines that begin with a dash, so that none begins with foreign text."""
    return "\n" + "".join(f"- {_text(text)}\n" for text in texts)


def _text(value: object) -> str:
    """Return *value* on one line, without characters that XML cannot hold."""
    return shorten(clean(str(value)), TEXT)


def _seconds(value: float | None) -> str:
    """Return a decimal without an exponent, as the schemas require."""
    known = value is not None and 0 <= value < math.inf
    return f"{value:.9f}" if known else "0"


def _stamp(created: str) -> str:
    """Return the date without its zone, which Ant's schema does not allow."""
    match = STAMP.match(created)
    try:
        return datetime.fromisoformat(match[0]).isoformat() if match else EPOCH
    except ValueError:
        return EPOCH
