"""Where may a chart go, and how is it written so that the same run gives the same bytes?"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf.errors import UsageError
from gpuperf.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DPI", "SUFFIXES", "save_figure", "targets_of"]

SUFFIXES = (".png", ".svg")
DPI = 200


def targets_of(paths: str | Path | Iterable[str | Path]) -> tuple[Path, ...]:
    """The files that *paths* name. Raises: UsageError for another suffix than PNG's and SVG's."""
    wanted = [paths] if isinstance(paths, str | Path) else list(paths)
    targets = tuple(Path(path) for path in wanted)
    for target in targets:
        if target.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"cannot draw to {target.name!r}: no chart has the suffix {target.suffix!r}",
                f"end the name with {' or '.join(SUFFIXES)}",
            )
    return targets


def save_figure(drawn: Figure, target: Path, title: str) -> None:
    """Write *drawn*. Raises: UsageError where that cannot be."""
    metadata: dict[str, Any] = {"Title": title}
    if target.suffix.lower() == ".svg":
        metadata["Date"] = None
    content = io.BytesIO()
    drawn.savefig(content, dpi=DPI, format=target.suffix[1:].lower(), metadata=metadata)
    try:
        write_atomically(target, content.getvalue())
    except OSError as error:
        raise UsageError(
            f"cannot write {str(target)!r}: {error.strerror or error}", "name another place"
        ) from None
