"""Read the part of YAML in which `task.yml` files of GPU MODE are written.

It has mappings and lists in blocks, flow mappings and lists on one line, quoted and plain scalars,
comments, and block scalars (`|`), whose text is kept. Anything else is an error.
"""

from __future__ import annotations

import json
import re
from typing import Any

KEY = re.compile(r"""("[^"]*"|'[^']*'|[^\s#:,\[\]{}&*!|>'"%@`-][^:#]*?)\s*:(?:\s+(.*)|)$""")
MOST_LINES = 20_000
DEEPEST = 50


class YamlError(ValueError):
    """A line that is not in the part of YAML that is read."""


def read_yaml(text: str) -> Any:
    """Return the value of *text*. Raises: YamlError."""
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise YamlError(f"it has over {MOST_LINES} lines")
    reader = _Reader(lines)
    value = reader.block(0, 0)
    if reader.at < len(lines):
        raise YamlError(f"line {reader.at + 1} is not understood")
    return value


class _Reader:
    """A position in the lines of a text."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.at = lines, 0
        self._skip()

    def _skip(self) -> None:
        while self.at < len(self.lines) and not _bare(self.lines[self.at]).strip("- \t"):
            if _bare(self.lines[self.at]).strip() not in ("", "---"):
                break
            self.at += 1

    def indent(self) -> int:
        """Return the indentation of the present line; -1 at the end."""
        if self.at >= len(self.lines):
            return -1
        line = self.lines[self.at]
        return len(line) - len(line.lstrip(" "))

    def block(self, least: int, depth: int) -> Any:
        """Read the block that begins here and is indented by *least* at least."""
        indent = self.indent()
        if indent < least or depth > DEEPEST:
            return None
        if self.lines[self.at].lstrip().startswith(("- ", "-\n")) or self._text() == "-":
            return self._list(indent, depth)
        return self._mapping(indent, depth)

    def _text(self) -> str:
        return _bare(self.lines[self.at]).strip()

    def _list(self, indent: int, depth: int) -> list[Any]:
        items = []
        while self.indent() == indent and self._text().startswith("-"):
            rest = self._text()[1:].strip()
            if not rest:
                self._next()
                items.append(self.block(indent + 1, depth + 1))
            elif rest[0] not in "{[\"'" and KEY.match(rest):
                inner = self.lines[self.at].index("-") + 1
                line = self.lines[self.at]
                self.lines[self.at] = line[: inner - 1] + " " + line[inner:]
                items.append(self._mapping(self.indent(), depth + 1))
            else:
                items.append(_flow(rest))
                self._next()
        return items

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while self.indent() == indent:
            match = KEY.match(self._text())
            if match is None:
                raise YamlError(f"line {self.at + 1} is not understood: {self._text()[:60]!r}")
            key, rest = match[1].strip("\"'"), (match[2] or "").strip()
            if rest[:1] in ("|", ">"):
                self._next()
                values[key] = self._text_block(indent)
            elif rest:
                values[key] = _flow(rest)
                self._next()
            else:
                self._next()
                same = self.indent() == indent and self._text().startswith("-")
                values[key] = self.block(indent if same else indent + 1, depth + 1)
        return values

    def _text_block(self, indent: int) -> str:
        begin = self.at
        while self.at < len(self.lines) and (
            not self.lines[self.at].strip() or self.indent() > indent
        ):
            self.at += 1
        text = "\n".join(line.strip() for line in self.lines[begin : self.at])
        self._skip()
        return text

    def _next(self) -> None:
        self.at += 1
        self._skip()


def _bare(line: str) -> str:
    """Return *line* without its comment."""
    quote = ""
    for index, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and (index == 0 or line[index - 1] in " \t"):
            return line[:index].rstrip()
    return line.rstrip()


def _flow(text: str) -> Any:
    """Return the value of a scalar, or of a mapping or list on one line."""
    if text[0] in "{[":
        parts = _split(text[1:-1]) if text[-1] == ("}" if text[0] == "{" else "]") else None
        if parts is None:
            raise YamlError(f"{text[:60]!r} does not end on its line")
        if text[0] == "[":
            return [_flow(part) for part in parts]
        pairs = [part.partition(":") for part in parts]
        return {key.strip().strip("\"'"): _flow(value.strip() or "null") for key, _, value in pairs}
    if text[0] in "\"'":
        return text[1:-1] if len(text) > 1 and text[-1] == text[0] else text
    if text in ("~", "null"):
        return None
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return text


def _split(text: str) -> list[str]:
    """Split *text* at its commas outside brackets and quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "{[":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[begin:index].strip())
            begin = index + 1
    return [part for part in [*parts, text[begin:].strip()] if part]
