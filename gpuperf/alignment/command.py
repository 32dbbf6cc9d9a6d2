"""`gpuperf alignment`: measure what odd sizes cost, and which size nearby costs less."""

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
            help=f"Offsets to add to each size (default: {DEFAULT_OFFSETS}).",
        ),
    ] = None,
    axis: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="The axis to vary (default: the main axes together).",
        ),
    ] = None,
    suggest: Annotated[
        str | None,
        typer.Option(
            metavar="RANGE",
            show_default=False,
            help="Sizes; for each, larger sizes nearby are measured and the fastest is suggested.",
        ),
    ] = None,
) -> int:
    """Measure how the alignment of sizes changes throughput.

    --sizes 4096 --offsets -64:64:+1 varies all main axes; --axis n --n 4096 --m 512 varies one.
    --suggest 50257 also measures larger sizes nearby and suggests the fastest, as a vocabulary of
    50257 is often padded to 50304.
    """
    if axis is not None and _option(axis) in NO_SIZE:
        raise UsageError(f"{_option(axis)} is not an axis of sizes", "for example --axis n")
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
    """Return the sizes to measure, as the text of an option, and the sizes of --suggest.

    Raises: UsageError.
    """
    if suggest is None:
        text = DEFAULT_OFFSETS if offsets is None else offsets
        steps = _range("--offsets", text, -LARGEST, DEFAULT_OFFSETS)
        return _shifted(_bases(words, axis, sizes), steps), ()
    if axis is not None and _given(words, axis):
        option = f"--{_option(axis)}"
        raise UsageError(f"--suggest sets {option} itself", f"leave {option} out")
    if offsets is not None or sizes is not None:
        raise UsageError("--suggest takes its sizes itself", "leave --offsets and --sizes out")
    from gpuperf.alignment.table import MOST_ASKED

    asked = _range("--suggest", suggest, 1)
    if len(asked) > MOST_ASKED:
        raise UsageError(
            f"--suggest has {len(asked)} sizes, and takes {MOST_ASKED} at most", "give fewer sizes"
        )
    return _nearby(asked), asked


def _range(option: str, text: str, minimum: int, example: str = "512,4096") -> tuple[int, ...]:
    try:
        return parse_range(text, minimum)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", f"for example {option} {example}") from None


def _option(axis: str) -> str:
    return axis.strip().lstrip("-").replace("_", "-")


def _without(words: list[str], axis: str) -> list[str]:
    name = f"--{_option(axis)}"
    others, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word.replace("_", "-") == name:
            skip = True
        elif not word.replace("_", "-").startswith(f"{name}="):
            others.append(word)
    return others


def _given(words: list[str], axis: str) -> list[str]:
    name, values = f"--{_option(axis)}", []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.partition("=")
        if option.replace("_", "-") == name:
            values.append(value if equals else following)
    return values


def _bases(words: list[str], axis: str | None, sizes: str | None) -> tuple[int, ...]:
    name = "--sizes" if axis is None else f"--{_option(axis)}"
    values = [] if axis is None else _given(words, axis)
    if len(values) > 1:
        raise UsageError(f"{name} is given twice", f"join values with commas: {name} 512,4096")
    if values:
        return _range(name, values[0], 1)
    if sizes is not None:
        return _range("--sizes", sizes, 1)
    raise UsageError(f"{name} has no size to add offsets to", f"{name} 4096")


def _shifted(bases: tuple[int, ...], offsets: tuple[int, ...]) -> str:
    sizes = sorted({base + offset for base in bases for offset in offsets})
    if sizes[0] < 1:
        raise UsageError(
            f"the offsets lead to a size of {sizes[0]}, below 1", "start from a larger size"
        )
    return ",".join(map(str, sizes))


def _nearby(asked: tuple[int, ...]) -> str:
    from gpuperf.tiles.alignment import nearby

    return ",".join(str(size) for size in sorted({n for size in asked for n in nearby(size)}))
