"""Frame every HTML page: one file that needs no network, under a strict content-security policy.

The policy allows the style sheet and the script of this package by their hashes, images inside the
page, and nothing else. Whatever else a page contains, no browser executes or loads it.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuperf.model.text import shorten
from gpuperf.show.html import text

LONGEST_ALT = 300  # characters
GENERATOR = '<meta name="generator" content="gpuperf">'  # by which a page of ours is known
REGION = re.compile('role=region aria-label="([^"]*)"')
SCRIPTS = ("tables.js", "marks.js", "picture.js", "page.js")


@dataclass(frozen=True)
class Section:
    """A part of a page: its heading, which may be empty, and its HTML."""

    heading: str
    body: str


def page(title: str, lead: Iterable[str], sections: Sequence[Section], data: str = "") -> str:
    """Return a whole page: *title* and the lines of *lead* are texts; *sections* and *data*, an
    element at the end of the page, are HTML."""
    style, script = _asset("page.css"), _script()
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        GENERATOR,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{text(title)}</title><style>{style}</style></head><body>",
        f"<header><h1>{text(title)}</h1>",
        *(f"<p>{text(line)}</p>" for line in lead),
        "</header><main>",
        _with_own_labels("\n".join(map(_section, itertools.count(1), sections))),
        "</main>",
        data,
        f"<script>{script}</script></body></html>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def data_element(name: str, json: str) -> str:
    """Return the element called *name* that contains *json*, in which each `<` is escaped."""
    escaped = json.replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{escaped}</script>'


def _section(number: int, section: Section) -> str:
    heading = f"<h2>{text(section.heading)}</h2>\n" if section.heading else ""
    return f'<section id="part-{number}">{heading}{section.body}</section>'


def _with_own_labels(sections: str) -> str:
    """Return *sections* with a number in the label of each region whose label another has too:
    those who do not see the page tell regions apart by it."""
    counts = Counter(REGION.findall(sections))
    taken = {label for label, count in counts.items() if count == 1}

    def numbered(found: re.Match[str]) -> str:
        label = found[1]
        if counts[label] > 1:
            label = next(n for i in itertools.count(1) if (n := f"{found[1]} {i}") not in taken)
            taken.add(label)
        return f'role=region aria-label="{label}"'

    return REGION.sub(numbered, sections)


def image(draw: Callable[[Sequence[Path]], object]) -> str:
    """Return the chart that *draw* writes into an SVG file, as an image inside the page.

    Nothing inside an image is executed, and its ids are its own. Raises: UsageError from *draw*.
    """
    with TemporaryDirectory(prefix="gpuperf-") as folder:
        target = Path(folder) / "chart.svg"
        draw([target])
        return embedded_image(target.read_bytes())


def embedded_image(svg: bytes, alt: str = "") -> str:
    """Return the chart *svg* of `show/figure.py` as an image; without *alt*, its title is its
    alternative text."""
    titled = re.search(rb"<dc:title>([^<]*)</dc:title>", svg)
    words = alt or (unescape(titled[1].decode()) if titled else "chart")
    source = base64.b64encode(svg).decode()
    return (
        f'<img src="data:image/svg+xml;base64,{source}" alt="{text(shorten(words, LONGEST_ALT))}">'
    )


@cache
def _asset(name: str) -> str:
    return files("gpuperf.show").joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    """Return the scripts of the package as one, whose names are its own."""
    return f'"use strict";(() => {{\n{"".join(map(_asset, SCRIPTS))}}})();'


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
