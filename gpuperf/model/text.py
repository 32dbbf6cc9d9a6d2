"""Remove characters from foreign text that could control a terminal or break XML.

Names of devices, workloads and axes come from drivers, users' files and run files of other
machines. Control characters, escapes and invisible characters (Unicode categories Cc, Cf, Cs, Co,
Cn) are removed once, when a file is decoded, so no output has to remove them again.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn"}
# JSON escapes every control character but DEL. The escapes of U+0020 to U+006F and of U+00B0 to
# U+00FF stand for printable characters.
_ESCAPED = re.compile(rb'\\(?!["\\/]|u00[2-6b-fB-F])|\x7f')


def clean(text: str) -> str:
    """Return *text* on one line, without invisible characters."""
    if text.isprintable():
        return text
    seen = (c for c in set(text) if c.isspace() or not _is_visible(c))
    return " ".join(text.translate({ord(c): " " if c.isspace() else None for c in seen}).split())


def _is_visible(character: str) -> bool:
    return unicodedata.category(character) not in _INVISIBLE


def clean_value(value: Any) -> Any:
    """Return *value* with every string and key in it cleaned, and with lists for tuples."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(k)): clean_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(v) for v in value]
    return value


def clean_json(line: bytes) -> bytes:
    """Return the JSON *line* with every string in it cleaned.

    A line that is not JSON is returned unchanged; its decoder reports the error.
    """
    if _is_clean(line):
        return line
    try:
        return json.dumps(clean_value(json.loads(line)), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return line


def _is_clean(line: bytes) -> bool:
    """Whether *line* certainly has nothing to clean. This runs on every line of a run file."""
    # Most lines have no backslash and no DEL: this search takes 1/30 of the expression's time.
    if (b"\\" in line or b"\x7f" in line) and _ESCAPED.search(line):
        return False
    if line.isascii():
        return True
    try:
        return line.decode().strip("\r\n\t ").isprintable()
    except UnicodeDecodeError:
        return True


def shorten(text: str, most: int) -> str:
    """Cut the middle of *text* so that at most *most* characters are left."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
