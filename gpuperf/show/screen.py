"""Detect what stdout can show, and write to it."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass

WIDTH_WITHOUT_TERMINAL = 100  # of a log or a pull request; COLUMNS sets another one
WIDEST = 200  # enough for all columns of most runs


@dataclass(frozen=True)
class Screen:
    """The width in characters, whether colours can be shown, and whether ASCII alone can."""

    width: int = WIDEST
    color: bool = False
    ascii: bool = False


WIDE = Screen()


def stdout_screen() -> Screen:
    """Detect the screen of stdout."""
    terminal = sys.stdout.isatty()
    fallback = (80 if terminal else WIDTH_WITHOUT_TERMINAL, 24)
    return Screen(
        width=shutil.get_terminal_size(fallback).columns,
        color=terminal and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR"),
        ascii=not (sys.stdout.encoding or "").lower().startswith("utf"),
    )


def put(text: str) -> None:
    """Write *text* to stdout at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
