"""The public names are whole, and docs/api.md is what their docstrings say."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import gpuperf

ROOT = Path(__file__).parent.parent


def test_the_public_names_are_sorted_there_and_documented() -> None:
    assert gpuperf.__all__ == sorted(set(gpuperf.__all__), key=_constants_first)
    for name in gpuperf.__all__:
        text = getattr(gpuperf, name).__doc__ or ""
        assert len(text.split()) > 3, name
        assert not text.startswith(f"{name}("), f"{name} has a dataclass's own docstring"


def _constants_first(name: str) -> tuple[bool, str]:
    return name[0].islower(), name


def test_type_checkers_see_the_names_that_are_loaded_on_use() -> None:
    """`__all__`, the imports under TYPE_CHECKING and the table of modules name the same."""
    tree = ast.parse((ROOT / "gpuperf" / "__init__.py").read_text(encoding="utf-8"))
    (checked,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    )
    seen = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == gpuperf._HOME
    assert set(seen) == set(gpuperf.__all__)


def test_the_reference_is_rendered_from_the_docstrings() -> None:
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / "docs" / "api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rendered = module.render()
    assert rendered == module.PAGE.read_text(encoding="utf-8"), "run: python docs/api.py"
    assert all(f"\n### {name}\n" in rendered for name in gpuperf.__all__)
    assert " at 0x" not in rendered
