"""How does a gate look to what reads test results?

One test case a case, named by its whole id, so that a server can follow it from gate to gate. What
does not let the gate pass is a failure (a regression) or an error (no verdict); where no case says
why a gate did not pass, one more test case does, so that nobody reads it as green.

The form is that of both schemas in use: Apache Ant's (windyroad/JUnit-Schema) and Jenkins'
(jenkinsci/xunit-plugin, junit-10.xsd). The text is ASCII: every encoding of a terminal writes it.
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
    reason_of,
    remarks,
    suspected,
    words_of,
)
from gpuperf.model.text import clean, shorten
from gpuperf.show.axes import Names, whole_names

NAME = 1000  # characters of a case
TEXT = 2000  # and of a property
WHOLE = "the gate as a whole"
STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}")
EPOCH = "1970-01-01T00:00:00"


def render_junit(report: GateReport) -> str:
    """*report* as an XML document."""
    names = names_of(report, NAME)
    ids = whole_names((case.case for case in report.cases), NAME)
    cases = [_case(case, ids[case.case], report) for case in report.cases]
    red = any(found.tag in ("failure", "error") for case in cases for found in case)
    cases.insert(0, _whole(report, names, red))
    suite = ElementTree.Element("testsuite", _attributes(report, cases))
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(report):
        ElementTree.SubElement(properties, "property", name=name, value=_text(value))
    suite.extend(cases)
    told = [headline(report, names), counts(report.cases, words_of(report))]
    told += [*remarks(report, names), *conditions(report, names)]
    ElementTree.SubElement(suite, "system-out").text = _lines(told)
    ElementTree.SubElement(suite, "system-err")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    text = ElementTree.tostring(root).decode("ascii")
    # GitHub's runner takes this, anywhere in a line of a log, for the beginning of a command.
    text = text.replace("##[", "#&#35;[")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _attributes(report: GateReport, cases: Sequence[ElementTree.Element]) -> dict[str, str]:
    """What a suite must say of itself."""

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
    """The outcome, as an error where it is none of the cases' own."""
    case = _testcase(report, WHOLE, None)
    own = report.outcome in ("contaminated", "incomplete") or suspected(report)
    if report.outcome != "passed" and (own or not red):
        told = headline(report, names)
        _told(case, "error", report.outcome, told, [told, *report.reasons[1:]])
    return case


def _case(case: CaseVerdict, name: str, report: GateReport) -> ElementTree.Element:
    """One case with what keeps the gate from passing."""
    found, verdict = _testcase(report, name, case.head_s), case.judged.verdict
    lines = [line for line in (figures(case), *reason_of(case, report)) if line]
    if case.owner:
        lines.append(f"owner {shorten(clean(case.owner), NAME)}")
    message = "; ".join(lines[:2]) or WORDS[verdict]
    if verdict == "REGRESSED" and suspected(report):
        _told(found, "error", words_of(report)[verdict], message, lines)
    elif verdict == "REGRESSED":
        _told(found, "failure", case.cause.kind if case.cause else WORDS[verdict], message, lines)
    elif verdict == "NOT_COMPARABLE" or hides(case, report.target):
        _told(found, "error", WORDS[verdict], message, lines)
    elif verdict == "INCONCLUSIVE":
        ElementTree.SubElement(found, "skipped", message=_text(f"inconclusive: {message}"))
    return found


def _testcase(report: GateReport, name: str, seconds: float | None) -> ElementTree.Element:
    """Its time is that of one call, as the median process of the head has it."""
    group = f"gpuperf.gate.{_text(report.suite) or 'suite'}"
    return ElementTree.Element("testcase", classname=group, name=name, time=_seconds(seconds))


def _told(
    case: ElementTree.Element, tag: str, kind: str, message: str, lines: Sequence[str]
) -> None:
    told = ElementTree.SubElement(case, tag, type=_text(kind), message=_text(message))
    told.text = _lines(lines)


def _properties(report: GateReport) -> Iterator[tuple[str, object]]:
    """Under which conditions the gate was: all that a later reader could ask for."""
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


def _lines(told: Sequence[str]) -> str:
    """A dash before each: what comes from outside begins no line."""
    return "\n" + "".join(f"- {_text(line)}\n" for line in told)


def _text(value: object) -> str:
    """In one line, and without what XML cannot hold."""
    return shorten(clean(str(value)), TEXT)


def _seconds(value: float | None) -> str:
    """A decimal without an exponent, as the schemas want it."""
    known = value is not None and 0 <= value < math.inf
    return f"{value:.9f}" if known else "0"


def _stamp(created: str) -> str:
    """The date without its zone, which Ant's schema knows not."""
    match = STAMP.match(created)
    try:
        return datetime.fromisoformat(match[0]).isoformat() if match else EPOCH
    except ValueError:
        return EPOCH
