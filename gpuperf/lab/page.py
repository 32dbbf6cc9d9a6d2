"""Write the page of several experiments: each question, prediction, measurement, ruling and chart.

The HTML is one file without scripts and without addresses of other files: charts are images inside
it. Every text from outside is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from gpuperf.files import write_atomically
from gpuperf.lab.session import Finding
from gpuperf.lab.table import lab_data, lab_table
from gpuperf.model.text import clean
from gpuperf.show.data import to_json
from gpuperf.show.markdown import to_markdown
from gpuperf.show.render import render
from gpuperf.show.screen import Screen
from gpuperf.show.table import Table
from gpuperf.show.text import escape as escape_markdown

TITLE = "gpuperf lab"
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;
color:#222;background:#fff}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #ddd}
td.left,th.left{text-align:left}
img{max-width:100%}
.CONFIRMED{color:#00694a}.REFUTED{color:#b33a00}.INCONCLUSIVE{color:#666}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}img{background:#fff}
th,td{border-color:#444}.CONFIRMED{color:#5fd0a8}.REFUTED{color:#ff9b66}.INCONCLUSIVE{color:#aaa}}
"""


def write_page(findings: Sequence[Finding], device: str, target: Path) -> tuple[Path, Path]:
    """Write *findings* beside *target* as .html and .md, and return both paths. Raises: OSError."""
    html, markdown = target.with_suffix(".html"), target.with_suffix(".md")
    write_atomically(html, to_html(findings, device))
    write_atomically(markdown, to_page(findings, device))
    return html, markdown


def render_findings(findings: Sequence[Finding], format: str, screen: Screen) -> str:
    """Render all that was measured as one JSON list, or as one CSV."""
    judged = [(f.study, f.ruling) for f in findings if f.study is not None and f.ruling is not None]
    if format == "json":
        return to_json([lab_data(study, ruling) for study, ruling in judged], screen.ascii)
    return render([lab_table(study, ruling, "") for study, ruling in judged], format, screen)


def to_html(findings: Sequence[Finding], device: str) -> str:
    """Write *findings* as one HTML file."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{TITLE}: {_html(device)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{TITLE}: {_html(device)}</h1>",
        f"<p>{_html(tally(findings))}</p>",
        _contents(findings),
        *(part for finding in findings for part in _section(finding, device)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def to_page(findings: Sequence[Finding], device: str) -> str:
    """Write *findings* as Markdown; charts are the files beside the runs."""
    parts = [f"# {TITLE}: {_marked(device)}", _marked(tally(findings))]
    for finding in findings:
        parts.append(f"## {_marked(finding.experiment.name)}")
        if finding.study is None or finding.ruling is None or finding.outcome is None:
            parts.append(f"{_marked(finding.experiment.question)} {_marked(finding.reason)}.")
            continue
        parts.append(to_markdown(lab_table(finding.study, finding.ruling, device)).strip())
        chart = finding.outcome.path.with_suffix(".png")
        if chart.exists():
            parts.append(f"![{_marked(finding.experiment.name)}]({chart.name})")
    return "\n\n".join(parts) + "\n"


def tally(findings: Sequence[Finding]) -> str:
    """Count the rulings: `3 CONFIRMED, 1 REFUTED, 2 not measured`."""
    names = [f.ruling.verdict if f.ruling else "not measured" for f in findings]
    order = ("CONFIRMED", "REFUTED", "INCONCLUSIVE", "not measured")
    return ", ".join(f"{names.count(name)} {name}" for name in order if name in names)


def _contents(findings: Sequence[Finding]) -> str:
    lines = []
    for finding in findings:
        name, ruling = _html(finding.experiment.name), finding.ruling
        verdict = ruling.verdict if ruling else "not measured"
        link = f'<a href="#{name}">{name}</a>'
        kind = verdict if ruling else "INCONCLUSIVE"
        question = _html(finding.experiment.question)
        lines.append(f'<li>{link}: {question} <b class="{kind}">{verdict}</b></li>')
    return f"<ul>{''.join(lines)}</ul>"


def _section(finding: Finding, device: str) -> Iterator[str]:
    experiment, ruling = finding.experiment, finding.ruling
    yield f'<h2 id="{_html(experiment.name)}">{_html(experiment.name)}</h2>'
    yield f"<p>{_html(experiment.question)}</p>"
    if finding.study is None or ruling is None or finding.outcome is None:
        yield f"<p>{_html(finding.reason)}.</p>"
        return
    verdict = f'<b class="{ruling.verdict}">{ruling.verdict}.</b>'
    yield f"<p>{verdict} {_html(ruling.sentence)}</p>"
    chart = finding.outcome.path.with_suffix(".svg")
    if chart.exists():
        data = base64.b64encode(chart.read_bytes()).decode()
        alt = _html(f"{experiment.name}: {ruling.sentence}")
        yield f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}">'
    table = lab_table(finding.study, ruling, device)
    yield html_table(table)
    notes = "".join(f"<li>{_html(head)}: {_html(text)}</li>" for head, text in table.footnotes)
    yield f"<ul>{notes}</ul><p>Run file: <code>{_html(finding.outcome.path.name)}</code></p>"


def html_table(table: Table) -> str:
    """Write the columns of *table* as HTML."""
    sides = ['class="left"' if column.left else "" for column in table.columns]
    heads = [
        f"<th {side}>{_html(f'{column.head} {column.unit}'.strip())}</th>"
        for column, side in zip(table.columns, sides, strict=True)
    ]
    rows = []
    for index in range(table.height):
        cells = (
            f"<td {side}>{_html(column.cells[index])}</td>"
            for column, side in zip(table.columns, sides, strict=True)
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    return f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"


def _html(text: str) -> str:
    return escape(clean(text), quote=True)


def _marked(text: str) -> str:
    return escape_markdown(clean(text))
