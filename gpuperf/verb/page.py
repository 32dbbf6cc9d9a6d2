"""Make the HTML page of a run from the charts and tables that its verb names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.files import write_atomically
from gpuperf.model.record import Header, Run
from gpuperf.model.text import shorten
from gpuperf.run.embedded import embed
from gpuperf.show.contract import how
from gpuperf.show.html import paragraph
from gpuperf.show.page import GENERATOR, Section, image, page
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE
from gpuperf.verb.printing import tables_below
from gpuperf.verb.progress import say
from gpuperf.verb.registry import ROWS, verb_of, verbs
from gpuperf.verb.verb import Chart, load

MOST_OPS = 4  # operations in a title
LONGEST = 60  # characters of a name
LONGEST_COMMAND = 300  # characters
# A page of gpuperf has one of these near its start; those of earlier versions have the second.
OURS = (GENERATOR.encode(), b"content=\"default-src 'none'; script-src 'sha256-")
HEAD_BYTES = 2048  # of a file are read to find them


def write_page(run: Run, text: bytes, target: Path) -> int:
    """Write the page of *run*, which contains its run file's *text*, and return its size in bytes.

    Raises: UsageError for a name that does not end with .html, and for an unwritable file.
    """
    refuse_other_suffix(target)
    return write_html(html_of(run, text), target)


def write_other(path: Path, target: Path) -> int | None:
    """Write the page of *path*, a file or a folder that is not a run, and return its size in bytes;
    None if no verb has a page for it. Raises: UsageError.
    """
    refuse_other_suffix(target)
    for verb in verbs().values():
        content = load(verb.page)(path) if verb.page else None
        if content is not None:
            return write_html(content, target)
    return None


def refuse_other_suffix(target: Path) -> None:
    """Refuse a file whose name does not end with .html. Raises: UsageError."""
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"cannot write a page to {target.name!r}: its name does not end with .html",
            "for example --html report.html",
        )


def write_html(content: str, target: Path) -> int:
    """Write the page *content* and return its size in bytes.

    Raises: UsageError for a name that does not end with .html, for an unwritable file, and for an
    existing one that is not a page of gpuperf.
    """
    refuse_other_suffix(target)
    _refuse_foreign(target)
    data = content.encode()
    try:
        write_atomically(target, data)
    except OSError as error:
        raise UsageError(
            f"cannot write {str(target)!r}: {error.strerror or error}", "choose another file"
        ) from None
    return len(data)


def _refuse_foreign(target: Path) -> None:
    hint = "choose another file, or delete this one"
    if not target.is_file() or not target.stat().st_size:
        return
    try:
        with target.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise UsageError(f"{target} exists and cannot be read: {error.strerror}", hint) from None
    if not any(mark in head for mark in OURS):
        raise UsageError(f"{target} exists and is not a page of gpuperf", hint)


def say_page(target: Path, size: int) -> None:
    """Report on stderr the page *target* of *size* bytes."""
    say(f"page: {target} ({max(1, round(size / 1000)):,} kB)")


def html_of(run: Run, text: bytes) -> str:
    """Return the page of *run*: its charts, each beside its table, and the *text* of its file."""
    return page(_title(run), _lead(run), list(_sections(run)), embed(text))


def _title(run: Run) -> str:
    header = run.header
    cases = header.plan or tuple(record.case for record in run.records)
    ops = list(dict.fromkeys(shorten(case.op, LONGEST) for case in cases))
    named = ", ".join(ops) if len(ops) <= MOST_OPS else f"{len(ops)} operations"
    name = verb_of(header).name if header.study or header.baseline else ROWS
    return f"{name}: {named or 'nothing'} on {shorten(header.device.name, LONGEST)}"


def _lead(run: Run) -> Iterator[str]:
    header = run.header
    yield how(run)
    yield " · ".join(filter(None, (header.run, header.created, _version(header))))
    if header.command:
        yield f"$ {shorten(' '.join(header.command), LONGEST_COMMAND)}"


def _version(header: Header) -> str:
    return f"gpuperf {header.gpuperf}" if header.gpuperf else ""


def _sections(run: Run) -> Iterator[Section]:
    """Yield the charts and the tables of the verb, and the roofline of a run that has one."""
    verb, rows = verb_of(run.header), verbs()[ROWS]
    timed = any(record.status == "ok" for record in run.records)
    charts = [chart for chart in verb.charts if timed and _fits(chart, run)]
    for chart in charts:
        if not chart.html:
            yield from _picture(chart, run)
    own = verb.tables if verb is not rows else ""
    if own:
        yield Section("", load(own)(run, "html", screen=WIDE))
    if not own or (verb.placed and timed and _is_placed(run)):
        yield Section("Under the roofline" if own else "", load(rows.charts[0].html)(run))
    if below := tables_below(run):
        yield Section("", render(below, "html"))


def _fits(chart: Chart, run: Run) -> bool:
    return not chart.fits or bool(load(chart.fits)(record.case for record in run.records))


def _is_placed(run: Run) -> bool:
    """Whether a record of *run* has a cost, without which it has no place under a roofline."""
    return any(record.cost is not None and record.samples is not None for record in run.records)


def _picture(chart: Chart, run: Run) -> Iterator[Section]:
    try:
        drawn = image(partial(load(chart.draw), run))
    except UsageError as error:
        yield Section("", paragraph(f"No {chart.noun} is drawn: {error}."))
    else:
        yield Section("", f"<figure class=chart>{drawn}</figure>")
