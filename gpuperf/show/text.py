"""Escape text for markdown, and write it in ASCII."""

from __future__ import annotations

import re

_MARKS = {mark: f"\\{mark}" for mark in "\\`*_[]|~#$"}
_SAFE = str.maketrans({**_MARKS, "&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LINES = dict.fromkeys("–—−─·", "-") | dict.fromkeys("┌┐└┘├┤┬┴┼", "+") | {"│": "|"}
_SIGNS = {"µ": "u", "±": "+/-", "×": "x", "…": "...", "²": "^2", "³": "^3", "°": "deg", "π": "pi"}
_ASCII = _LINES | _SIGNS | {"≥": ">=", "≤": "<=", "→": "->"}


_OBEYED = re.compile(r"[\\`*_\[\]|~#$&<>@]|(?i:(?:https?|ftp|www)[:.]|gh-\d)")


def escape(text: str) -> str:
    """Escape *text* for a cell of a GitHub table.

    `@name` mentions no user, and `#1` and `GH-1` are no links, which a backslash cannot prevent.
    """
    if not _OBEYED.search(text):
        return text
    safe = re.sub(r"(?i)\b(https?|ftp|www)(?=[:.])", r"\1<!-- -->", text.translate(_SAFE))
    safe = re.sub(r"\\#(?=\w)", "#<!-- -->", safe)
    safe = re.sub(r"(?i)\bgh-(?=\d)", lambda m: f"{m[0][:2]}<!-- -->-", safe)
    return re.sub(r"@(?=\w)", "@<!-- -->", safe)


def escape_line(text: str) -> str:
    """Escape *text* at the beginning of a line, so that it makes no list and no heading."""
    return re.sub(r"^(\d*)([-+=.)])", r"\1\\\2", escape(text))


def to_ascii(text: str) -> str:
    """Write *text* in ASCII; a character without a similar one becomes `?`."""
    if text.isascii():
        return text
    return "".join(c if c.isascii() else _ASCII.get(c, "?") for c in text)
