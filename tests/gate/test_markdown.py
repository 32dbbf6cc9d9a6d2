"""The markdown of a gate obeys no name, mentions owners alone, and keeps GitHub's limits."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from synthetic_report import hostile, missing, mixed, regressed, report, unchanged

from gpuperf.gate.formats import GateFormat, render_gate
from gpuperf.gate.markdown import COMMENT_LIMIT, MARKER, SUMMARY_LIMIT
from gpuperf.gate.verdict import Cause, SideSummary


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
def test_a_name_mentions_no_user_and_refers_to_no_issue_or_site(format: GateFormat) -> None:
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


def test_a_comment_leaves_out_unchanged_cases() -> None:
    text = render_gate(mixed(), GateFormat.COMMENT)
    assert "m=n=k=512" not in text
    assert "1 more are not shown: 1 unchanged" in text
    assert text.index("m=n=k=1024") < text.index("n=64") < text.index("m=n=k=2048")
    assert "**more bytes**: bytes 268 MB → 537 MB" in text


# Longer than the 1,600 characters that the markdown looks at.
LONG = {
    "ascii": "kernel_" * 300,
    "multi-byte": "カーネル🔥" * 400,
    "markup": "<|`@a#1" * 300,
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
