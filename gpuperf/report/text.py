"""Shorten text for a screen or a file; `clean` is the model's."""

from __future__ import annotations

from gpuperf.model.text import clean, clean_value

__all__ = ["clean", "clean_value", "shorten"]


def shorten(text: str, most: int) -> str:
    """At most *most* characters of *text*, its two ends kept."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
