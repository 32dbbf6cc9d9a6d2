"""Compare rendered text with the golden files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden" / "report"


def assert_golden(name: str, text: str) -> None:
    """*text* is the golden file *name*. GPUPERF_GOLDEN=write writes it instead, and fails: what was
    written is for a person to read before it counts. CI writes none."""
    path = GOLDEN / name
    if os.environ.get("GPUPERF_GOLDEN") == "write":
        assert not os.environ.get("CI"), "GPUPERF_GOLDEN has no place in CI"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{name} was written: read it, then run without GPUPERF_GOLDEN")
    assert text == path.read_text(encoding="utf-8")
