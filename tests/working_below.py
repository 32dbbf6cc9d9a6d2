"""Find the processes that work in a folder."""

from __future__ import annotations

import contextlib
from pathlib import Path


def running(folder: Path) -> set[str]:
    """The processes that work below *folder*, as all do that the judge starts there."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                if str((entry / "cwd").readlink()).startswith(f"{folder}/"):
                    found.add(entry.name)
    return found
