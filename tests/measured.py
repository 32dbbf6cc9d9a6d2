"""The run files of `docs/measured`, which are compressed by gzip."""

from __future__ import annotations

import gzip
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
MEASURED = ROOT / "docs" / "measured"
RUN_FILES = sorted(MEASURED.glob("*.jsonl.gz"))


def run_file(name: str) -> Path:
    """Return the path of the run file called *name*."""
    return MEASURED / f"{name}.jsonl.gz"


def name_of(path: Path) -> str:
    """Return the name of a run file without its suffixes, for the id of a test."""
    return path.name.partition(".")[0]


def text_of(path: Path) -> str:
    """Return the text of a compressed run file."""
    return gzip.decompress(path.read_bytes()).decode()
