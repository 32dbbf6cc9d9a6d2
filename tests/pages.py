"""HTML pages as a browser's parser sees them: elements with their attributes, and no more."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

EVIL = '</script><img src=x onerror="alert(1)">\'><svg onload=alert(1)>${1}\u202e'
FREE = {"op", "implementation", "reason", "message", "hint", "name", "command", "source", "region"}
VOID = {"meta", "img", "input", "br"}
OPTIONAL = {"td", "th", "tr", "li", "thead", "tbody"}  # elements whose end tags may be left out


@dataclass
class Seen(HTMLParser):
    """The elements of a page, its texts, and its scripts and style sheets by their contents."""

    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    raw: dict[str, list[str]] = field(default_factory=lambda: {"script": [], "style": []})
    opened: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID | OPTIONAL:
            self.opened.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag not in OPTIONAL:
            assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.opened[-1] if self.opened else ""
        if inside in self.raw:
            self.raw[inside].append(data)
        else:
            self.texts.append(data)

    def of(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every element *tag*."""
        return [attributes for name, attributes in self.tags if name == tag]


def seen(page: str) -> Seen:
    """Parse *page*, each of whose elements must be closed in order."""
    parser = Seen()
    parser.feed(page)
    parser.close()
    assert parser.opened == []
    return parser


def check_inert(page: str) -> Seen:
    """Check that *page* loads nothing, and that a browser executes only what its policy names."""
    found = seen(page)
    (policy,) = (a["content"] for a in found.of("meta") if "http-equiv" in a)
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    codes = [code for code in (*found.raw["script"], *found.raw["style"]) if not _is_data(code)]
    assert {digest(code) for code in codes} == allowed
    for tag, attributes in found.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes), tag
        for name in ("src", "href", "action", "data", "formaction"):
            address = attributes.get(name, "#")
            assert address.startswith(("#", "data:image/svg+xml;base64,")), address
        assert tag not in ("iframe", "object", "embed", "link", "base", "form"), tag
    return found


def poisoned(value: Any, key: str = "") -> Any:
    """*value* with `EVIL` before every text that is free to be anything."""
    if isinstance(value, str):
        return EVIL + value if key in FREE and value else value
    if isinstance(value, dict):
        return {name: poisoned(one, name) for name, one in value.items()}
    return [poisoned(one, key) for one in value] if isinstance(value, list) else value


def _is_data(content: str) -> bool:
    return content.startswith("{") or re.fullmatch(r"[!-;=-~]{40,}", content) is not None


def digest(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
