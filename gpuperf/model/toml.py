"""Parse TOML text from files that may be hostile.

`tomllib` keeps every prefix of a dotted key, so one key of 100,000 parts (200 kB of text) takes
40 GB of memory.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_PARTS = 16  # of a dotted key; gpuperf's own files use three
_PART = r"""(?:(?<![\w-])[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MOST_PARTS}}}")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables in *text*. Raises: ValueError if it is not TOML, or nested too deep.

    A string or a comment that looks like a key of too many parts is refused like a key.
    """
    match = _LONG_KEY.search(text)
    if match:
        line = text.count("\n", 0, match.start()) + 1
        raise ValueError(f"a key on line {line} has over {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its arrays or tables are nested too deep") from None
