"""Remove from text of other origin what could move a cursor, colour a terminal or break XML.

Device, workload and axis names come from drivers, users' files and run files of other machines.
Control characters, escapes and invisible marks (categories Cc, Cf, Cs, Co, Cn) are removed once,
where a file is decoded, so that no output has to think of them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn"}
# JSON hides a control character behind a backslash; DEL alone may be written as it is. Escapes of
# U+0020 to U+006F and U+00B0 to U+00FF are of characters that print.
_ESCAPED = re.compile(rb'\\(?!["\\/]|u00[2-6b-fB-F])|\x7f')


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


def clean_json(line: bytes) -> bytes:
    """The JSON *line* with every string in it cleaned; as it is where there is nothing to clean,
    and where it is not JSON, which its decoder will report."""
    if _is_clean(line):
        return line
    try:
        return json.dumps(clean_value(json.loads(line)), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return line


def _is_clean(line: bytes) -> bool:
    """Whether *line* certainly holds nothing to clean. It is asked of every line of a run file."""
    # Of nearly every line: to look for two bytes takes a thirtieth of the time of the expression.
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
