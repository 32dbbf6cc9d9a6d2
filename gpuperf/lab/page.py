"""Write the page of several experiments: each question, prediction, measurement, ruling and chart.

The HTML is one file without addresses of other files: charts are images inside it. Every text from
outside is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gpuperf.files import write_atomically
from gpuperf.lab.session import Finding
from gpuperf.lab.table import lab_data, lab_table
from gpuperf.model.text import clean
from gpuperf.show.data import to_json
from gpuperf.show.html import paragraph, text
from gpuperf.show.html import to_html as to_table
from gpuperf.show.markdown import to_markdown
from gpuperf.show.page import Section, embedded_image, page
from gpuperf.show.render import render
from gpuperf.show.screen import Screen
from gpuperf.show.text import escape as escape_markdown

TITLE = "gpuperf lab"


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
    sections = [Section("", _contents(findings))]
    sections += [Section(f.experiment.name, "\n".join(_section(f, device))) for f in findings]
    return page(f"{TITLE}: {device}", [tally(findings)], sections)


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
    for number, finding in enumerate(findings, 2):  # the contents are the first part
        name, ruling = text(finding.experiment.name), finding.ruling
        verdict = ruling.verdict if ruling else "not measured"
        kind = verdict if ruling else "INCONCLUSIVE"
        link = f'<a href="#part-{number}">{name}</a>'
        question = text(finding.experiment.question)
        lines.append(f'<li>{link}: {question} <b class="{kind}">{verdict}</b></li>')
    return f"<ul>{''.join(lines)}</ul>"


def _section(finding: Finding, device: str) -> Iterator[str]:
    experiment, ruling = finding.experiment, finding.ruling
    yield paragraph(experiment.question)
    if finding.study is None or ruling is None or finding.outcome is None:
        yield paragraph(f"{finding.reason}.")
        return
    verdict = f'<b class="{ruling.verdict}">{ruling.verdict}.</b>'
    yield f"<p>{verdict} {text(ruling.sentence)}</p>"
    chart = finding.outcome.path.with_suffix(".svg")
    if chart.exists():
        drawn = embedded_image(chart.read_bytes(), f"{experiment.name}: {ruling.sentence}")
        yield f"<figure class=chart>{drawn}</figure>"
    yield to_table(replace(lab_table(finding.study, ruling, device), title="", lead=()))
    yield f"<p>Run file: <code>{text(finding.outcome.path.name)}</code></p>"


def _marked(text: str) -> str:
    return escape_markdown(clean(text))
