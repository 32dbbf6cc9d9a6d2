"""`gpuperf alignment`: what odd sizes cost, and which size nearby costs less."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from gpuperf.errors import UsageError
from gpuperf.units import LARGEST, parse_range
from gpuperf.verb import options as opt
from gpuperf.verb.measuring import Request, measure_new, refuse_axis, refuse_one_size, report

DEFAULT_OFFSETS = "-64:64:+1"
NO_SIZE = ("dtype", "impl")  # options that are no axes of numbers


@opt.takes(
    *opt.CASES,
    "device",
    "threads",
    *opt.TIMING,
    "counters",
    *opt.FILES,
    "seed",
    budget=0.5,
    counters="off",
)
def alignment(
    options: opt.Options,
    offsets: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            show_default=False,
            help=f"What is added to each size: {DEFAULT_OFFSETS}, unless given.",
        ),
    ] = None,
    axis: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="The axis to move; the main axes together, unless given.",
        ),
    ] = None,
    suggest: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            show_default=False,
            help="Sizes, to find the cheapest better one nearby for each.",
        ),
    ] = None,
) -> int:
    """Measure how the alignment of sizes changes throughput.

    --sizes 4096 --offsets -64:64:+1 varies all main axes; --axis n --n 4096 --m 512 varies one.
    --suggest 50257 also measures larger sizes nearby and suggests the fastest, as a vocabulary of
    50257 is often padded to 50304.
    """
    if axis is not None and _option(axis) in NO_SIZE:
        raise UsageError(f"{_option(axis)} is no axis of sizes", "--axis n moves n")
    given = list(options.words)
    with options.supervisor() as supervisor:
        if axis is not None:
            refuse_axis(supervisor, options.op, given, _option(axis).replace("-", "_"))
        moved, asked = _moved(given, axis, options.sizes, offsets, suggest)
        if axis is None:
            options = replace(options, sizes=moved)
        else:
            words = (*_without(given, axis), f"--{_option(axis)}", moved)
            options = replace(options, words=words)
        request = Request(
            "alignment",
            options,
            options.conditions,
            study="alignment",
            asked=asked,
            refuse=lambda cases, _: refuse_one_size(cases, "--offsets -64:64:+1"),
        )
        outcome = measure_new(supervisor, request)
    return report(outcome, options)


def _moved(
    words: list[str], axis: str | None, sizes: str | None, offsets: str | None, suggest: str | None
) -> tuple[str, tuple[int, ...]]:
    """The sizes to be measured, as an option takes them, and those that a better one is sought
    for. Raises: UsageError."""
    if suggest is None:
        told = DEFAULT_OFFSETS if offsets is None else offsets
        steps = _range("--offsets", told, -LARGEST, DEFAULT_OFFSETS)
        return _shifted(_bases(words, axis, sizes), steps), ()
    if axis is not None and _given(words, axis):
        told = f"--suggest sets --{_option(axis)} itself"
        raise UsageError(told, f"leave --{_option(axis)} out")
    if offsets is not None or sizes is not None:
        raise UsageError("--suggest takes its sizes itself", "leave --offsets and --sizes out")
    from gpuperf.alignment.table import MOST_ASKED

    asked = _range("--suggest", suggest, 1)
    if len(asked) > MOST_ASKED:
        raise UsageError(f"{len(asked)} sizes are more than {MOST_ASKED}", "ask for fewer")
    return _nearby(asked), asked


def _range(option: str, text: str, minimum: int, example: str = "512,4096") -> tuple[int, ...]:
    try:
        return parse_range(text, minimum)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", f"for example {option} {example}") from None


def _option(axis: str) -> str:
    return axis.strip().lstrip("-").replace("_", "-")


def _without(words: list[str], axis: str) -> list[str]:
    """*words* without the option of *axis* and its value."""
    name = f"--{_option(axis)}"
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word.replace("_", "-") == name:
            skip = True
        elif not word.replace("_", "-").startswith(f"{name}="):
            kept.append(word)
    return kept


def _given(words: list[str], axis: str) -> list[str]:
    """What is written for *axis*."""
    name, found = f"--{_option(axis)}", []
    for word, value in zip(words, [*words[1:], ""], strict=True):
        option, equals, own = word.partition("=")
        if option.replace("_", "-") == name:
            found.append(own if equals else value)
    return found


def _bases(words: list[str], axis: str | None, sizes: str | None) -> tuple[int, ...]:
    """The sizes that offsets are added to."""
    if axis is None:
        if sizes is None:
            raise UsageError("no size was given to move away from", "--sizes 4096")
        return _range("--sizes", sizes, 1)
    name, given = f"--{_option(axis)}", _given(words, axis)
    if len(given) > 1:
        raise UsageError(f"{name} is given twice", f"commas join: {name} 512,4096")
    if given:
        return _range(name, given[0], 1)
    if sizes is not None:
        return _range("--sizes", sizes, 1)
    raise UsageError(f"{name} has no size to move away from", f"{name} 4096")


def _shifted(bases: tuple[int, ...], offsets: tuple[int, ...]) -> str:
    found = [base + offset for base in bases for offset in offsets]
    low = min(found)
    if low < 1:
        raise UsageError(
            f"the offsets lead to a size of {low}, below 1", "start from a larger size"
        )
    return ",".join(str(size) for size in dict.fromkeys(sorted(found)))


def _nearby(asked: tuple[int, ...]) -> str:
    from gpuperf.tiles.alignment import nearby

    return ",".join(str(size) for size in sorted({n for size in asked for n in nearby(size)}))
