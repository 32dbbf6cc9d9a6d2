"""Read the words of a command line before typer does.

Typer silently takes the last value of an option that is given twice, and its help does not know the
axes of a workload.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.errors import UsageError

HELP = ("--help", "-h")


def refuse_repeated(words: Sequence[str]) -> None:
    """Refuse an option that is given twice. Raises: UsageError."""
    options = [word.partition("=")[0] for word in words if word.startswith("--") and word != "--"]
    for option in options:
        if options.count(option) > 1:
            hint = f"commas join: {option} 128,256" if option == "--sizes" else "give it once"
            raise UsageError(f"{option} is given twice", hint)


def axes_help(words: Sequence[str]) -> str:
    """Describe the axes of the workload that *words* name, if the catalogue is cached."""
    from gpuperf.run.catalogue import (
        known_workload,
    )  # imported here, as help of other verbs does not need it

    op = _workload(words)
    workload = known_workload(op) if op else None
    if workload is None:
        return "Each axis of the workload is an option too: `gpuperf list OP` shows them."
    axes = ", ".join(f"--{axis.name.replace('_', '-')} ({axis.default})" for axis in workload.axes)
    return f"Axes of {workload.name}, with their defaults: {axes}."


def _workload(words: Sequence[str]) -> str:
    """Return the value of --op, or the first word if it is not an option."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option == "--op":
            return value if equals else following
    return words[0] if words and not words[0].startswith("-") else ""
