"""What of a foreign string may reach a screen or a file?

Device, workload and axis names come from drivers, users' files and strangers' runs. Control
characters, escapes and invisible marks (categories Cc, Cf, Cs, Zl, Zp) would move cursors, colour
terminals or break XML; none of them passes.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

__all__ = ["clean", "clean_value", "escape", "shorten", "to_ascii"]

_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn"}
_ASCII = {
    "µ": "u", "±": "+/-", "×": "x", "·": "-", "…": "...", "–": "-", "—": "-", "−": "-", "─": "-",
    "│": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┬": "+", "┴": "+",
    "┼": "+", "²": "^2", "³": "^3", "≥": ">=", "≤": "<=", "→": "->", "°": "deg", "π": "pi",
}  # fmt: skip


def clean(text: str) -> str:
    """*text* on one line, without anything invisible; an ANSI escape loses its escape character."""
    if text.isprintable():
        return text
    kept = (
        " " if c.isspace() else "" if unicodedata.category(c) in _INVISIBLE else c for c in text
    )
    return " ".join("".join(kept).split())


def clean_value(value: Any) -> Any:
    """*value* with every string in it cleaned, keys too, and tuples made lists."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(k)): clean_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(v) for v in value]
    return value


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
