"""What do the words of a command line say before typer reads them?

Typer takes the last of an option that is given twice, and its help knows no axes of a workload.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuperf.errors import UsageError

HELP = ("--help", "-h")


def refuse_repeated(words: Sequence[str]) -> None:
    """Raises: UsageError where an option is given twice."""
    options = [word.partition("=")[0] for word in words if word.startswith("--") and word != "--"]
    for option in options:
        if options.count(option) > 1:
            hint = f"commas join: {option} 128,256" if option == "--sizes" else "give it once"
            raise UsageError(f"{option} is given twice", hint)


def axes_help(words: Sequence[str]) -> str:
    """The axes of the workload that *words* name, where the catalogue is cached."""
    from gpuperf.run.catalogue import known_workload  # here: help of other verbs needs none

    op = _workload(words)
    found = known_workload(op) if op else None
    if found is None:
        return "Axes of a workload are options too: `gpuperf list OP` shows them."
    axes = ", ".join(f"--{axis.name.replace('_', '-')} ({axis.default})" for axis in found.axes)
    return f"Axes of {found.name}, with their defaults: {axes}."


def _workload(words: Sequence[str]) -> str:
    """The value of --op, or the first word where it is no option."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option == "--op":
            return value if equals else following
    return words[0] if words and not words[0].startswith("-") else ""
