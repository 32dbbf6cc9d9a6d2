"""Render the reference of the public API from its docstrings: `python docs/api.py` writes api.md.

The names are those of `gpuperf.__all__`; `tests/test_api.py` compares the file with this rendering.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import gpuperf

PAGE = Path(__file__).with_name("api.md")
WIDTH = 100  # characters of a signature on one line
HEAD = """# The Python API

Everything here is a name of `gpuperf`: `from gpuperf import Workload`. `import gpuperf` imports
neither torch nor pandas. Quantities are in SI units: seconds, bytes, FLOP, hertz.

This page is rendered from the docstrings by `python docs/api.py`.
"""


class Bare:
    """An annotation that is shown without quotes."""

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation

    def __repr__(self) -> str:
        text = self.annotation
        return text if isinstance(text, str) else inspect.formatannotation(text)


class Code:
    """A default that is a function or a factory, whose text would have an address in memory."""

    def __repr__(self) -> str:
        return "…"


def render() -> str:
    """Return the page: the names in the groups of their modules, those that measure first."""
    groups: dict[str, list[str]] = {}
    for name in gpuperf.__all__:
        groups.setdefault(getattr(gpuperf, name).__module__, []).append(name)
    modules = sorted(groups, key=lambda module: (".library." not in module, module))
    parts = [HEAD, _contents([name for module in modules for name in groups[module]])]
    for module in modules:
        parts.append(f"## {_title(module)}\n")
        parts += [part for name in groups[module] for part in _entry(name, getattr(gpuperf, name))]
    return "\n".join(parts)


def _contents(names: list[str]) -> str:
    """Return links to *names*, whose anchors count where two differ by capitals alone."""
    seen: dict[str, int] = {}
    links = {}
    for name in names:
        anchor = name.lower()
        count = seen[anchor] = seen.get(anchor, -1) + 1
        links[name] = f"[`{name}`](#{anchor}{f'-{count}' if count else ''})"
    return ",\n".join(links[name] for name in sorted(names, key=str.lower)) + ".\n"


def _title(module: str) -> str:
    """Return the first sentence of a module's docstring, without its full stop."""
    text = inspect.getdoc(sys.modules[module]) or module
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"```python\n{_signature(name, value)}\n```\n"
    yield f"{inspect.getdoc(value) or ''}\n"
    members = dict(_members(value))
    properties = [m for m in members.items() if not inspect.isfunction(m[1])]
    if properties:
        yield "\n".join(f"- `.{member}`: {_first(of)}" for member, of in properties) + "\n"
    for member, method in members.items():
        if inspect.isfunction(method):
            yield f"#### {name}.{member}\n"
            yield f"```python\n{_signature(member, method)}\n```\n"
            yield f"{inspect.getdoc(method)}\n"


def _first(value: object) -> str:
    return " ".join((inspect.getdoc(value) or "").split())


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class defines and documents."""
    for name, member in vars(value).items() if inspect.isclass(value) else ():
        member = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        shown = inspect.isfunction(member) or isinstance(member, property | cached_property)
        if shown and not name.startswith("_") and inspect.getdoc(member):
            yield name, member


def _signature(name: str, value: Callable[..., Any]) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # a subclass of a builtin type
        return f"{name}(…)"
    bare = [
        p.replace(annotation=_bare(p.annotation), default=_default(p.default))
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    returned = inspect.Signature.empty
    if not inspect.isclass(value):
        returned = _bare(signature.return_annotation)
    text = f"{name}{signature.replace(parameters=bare, return_annotation=returned)}"
    if len(text) <= WIDTH:
        return text
    tail = text[text.rindex(")") :]
    lines = str(inspect.Signature(bare))[1:-1]
    return f"{name}(\n" + "".join(f"    {line},\n" for line in _split(lines)) + tail


def _bare(annotation: Any) -> Any:
    return annotation if annotation is inspect.Parameter.empty else Bare(annotation)


def _default(value: Any) -> Any:
    made = inspect.isfunction(value) or repr(value) == "<factory>"
    return Code() if made and value is not inspect.Parameter.empty else value


def _split(parameters: str) -> Iterator[str]:
    """Split text at the commas that are in no brackets."""
    depth, start = 0, 0
    for index, letter in enumerate(parameters):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            yield parameters[start:index].strip()
            start = index + 1
    yield parameters[start:].strip()


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
