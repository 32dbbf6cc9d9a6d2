"""Escape and shorten text for a screen or a file; `clean` is the model's."""

from __future__ import annotations

import re

from gpuperf.model.text import clean, clean_value

__all__ = ["clean", "clean_value", "escape", "shorten", "to_ascii"]

_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_ASCII = {
    "µ": "u", "±": "+/-", "×": "x", "·": "-", "…": "...", "–": "-", "—": "-", "−": "-", "─": "-",
    "│": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┬": "+", "┴": "+",
    "┼": "+", "²": "^2", "³": "^3", "≥": ">=", "≤": "<=", "→": "->", "°": "deg", "π": "pi",
}  # fmt: skip


def escape(text: str) -> str:
    """*text* as literal text in a cell of a GitHub table; `@name` mentions nobody."""
    safe = re.sub(r"([\\`*_\[\]|~#$])", r"\\\1", text).translate(_HTML)
    safe = re.sub(r"(?i)\b(https?|ftp|www)(?=[:.])", r"\1<!-- -->", safe)
    return re.sub(r"@(?=\w)", "@<!-- -->", safe)


def shorten(text: str, most: int) -> str:
    """At most *most* characters of *text*, its two ends kept."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def to_ascii(text: str) -> str:
    """*text* for a terminal that knows ASCII only; a character without a likeness becomes `?`."""
    if text.isascii():
        return text
    return "".join(c if c.isascii() else _ASCII.get(c, "?") for c in text)
