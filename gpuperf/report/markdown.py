"""How is a run shown in a pull request?

A GitHub table of every column, with the caption as a list under it. Names from outside are escaped:
pipes and everything that markdown or HTML would obey.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuperf.model.record import Run
from gpuperf.report.caption import Note
from gpuperf.report.sheet import Sheet, sheet
from gpuperf.report.text import escape

__all__ = ["markdown"]

def markdown(run: Run) -> str:
    """The table of *run* in GitHub's markdown, ending with a newline."""
    of = sheet(run)
    parts = [[f"**{escape(of.title)}**"], list(_table(of))]
    parts += [list(_notes(notes)) for notes in (of.footnotes, of.notes) if notes]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _table(of: Sheet) -> Iterable[str]:
    columns = of.columns
    last = columns[-1]
    with_doubts = last.head == "caveats" or not any(of.failures)
    heads = [_own(f"{c.head} {c.unit}".strip()) for c in columns]
    sides = [":--" if c.left else "--:" for c in columns]
    yield _line(heads if with_doubts else [*heads, "caveats"])
    yield _line(sides if with_doubts else [*sides, ":--"])
    for i, failure in enumerate(of.failures):
        cells = [escape(c.cells[i]) for c in columns]
        if failure:
            own = columns[:-1] if last.head == "caveats" else columns
            doubts = cells[-1] if last.head == "caveats" else ""
            cells = [escape(c.cells[i]) if c.identity else "" for c in own]
            cells.append(" · ".join(filter(None, (f"**{escape(failure)}**", doubts))))
        elif not with_doubts:
            cells.append("")
        yield _line(cells)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _own(text: str) -> str:
    """Our own words escaped; `@clock` would mention a stranger of that name."""
    return escape(text.replace("@clock", "at clock"))


def _notes(notes: Iterable[Note]) -> Iterable[str]:
    for heading, text in notes:
        yield f"- **{escape(heading)}**: {_own(text)}"
