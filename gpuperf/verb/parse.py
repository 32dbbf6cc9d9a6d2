"""Parse the texts of options; each error names the option and gives an example."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, get_args

from gpuperf.errors import UnknownName, UsageError
from gpuperf.model.contract import LEAST_PRECISE, Regime
from gpuperf.model.workload import RESERVED, Description
from gpuperf.show.view import View
from gpuperf.units import parse_duration

LONGEST_GAP_S = 60.0
MOST_RANKS = 32  # of a gang on one host

T = TypeVar("T")


def split(text: str | None) -> tuple[str, ...]:
    """Split `a,b` at its commas; None gives no names. Raises: UsageError for an empty name."""
    names = tuple(name.strip() for name in text.split(",")) if text is not None else ()
    if not all(names):
        raise UsageError(f"{text!r} contains an empty name", "join names by commas: torch,triton")
    return names


def choose(option: str, text: str | None, choices: Sequence[T]) -> tuple[T, ...]:
    """Return the *choices* that *text* names, in its order. Raises: UnknownName, UsageError."""
    return tuple(choose_one(option, name, choices) for name in dict.fromkeys(split(text)))


def choose_regimes(text: str | None, energy: bool) -> tuple[Regime, ...]:
    """Return the regimes that `--regime` names, which `--energy` needs to be sustained.

    Raises: UnknownName, UsageError.
    """
    regimes: tuple[Regime, ...] = choose("regime", text, get_args(Regime))
    if energy and "sustained" not in (regimes or ("sustained",)):
        raise UsageError("--energy needs a sustained load", "--regime burst,sustained times both")
    return regimes or (("sustained",) if energy else ())


def choose_one(option: str, text: str, choices: Sequence[T]) -> T:
    """Return the one of *choices* that *text* names. Raises: UnknownName."""
    for choice in choices:
        if choice == text:
            return choice
    raise UnknownName(option, text, [str(choice) for choice in choices])


def parse_view(text: str) -> View:
    """Return the view that `--intensity` names. Raises: UnknownName."""
    view: View = choose_one("intensity", text, get_args(View))
    return view


def folder(text: str | Path) -> Path:
    """Return the folder that `--out` names. Raises: UsageError for an empty name."""
    if not str(text):
        raise UsageError("--out names no folder", "for example --out gpuperf-runs")
    return Path(text)


def precision(text: str | float) -> float:
    """Parse a fraction: `0.01` and `1%` are the same. Raises: UsageError."""
    words = str(text).strip()
    try:
        value = float(words.removesuffix("%")) / (100 if words.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 1e-4 <= value <= LEAST_PRECISE:
        reason = "is not a number" if math.isnan(value) else "is not from 0.0001 to 1"
        raise UsageError(f"--precision {words} {reason}", "0.01 is 1 %; --precision 1% is the same")
    return value


def ranks(text: str | int) -> int:
    """Parse the number of ranks of a gang. Raises: UsageError."""
    words = str(text).strip()
    if not words.isdecimal() or not 2 <= int(words) <= MOST_RANKS:
        hint = "for example --gpus 2; one device needs no --gpus"
        raise UsageError(f"--gpus {words} is not a whole number from 2 to {MOST_RANKS}", hint)
    return int(words)


def part(text: str) -> tuple[int, int]:
    """Return a part's number, from 0, and the number of parts from *text*, as `0/4`.

    Raises: UsageError.
    """
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise UsageError(f"--part {text} names no part", "--part 0/4 is the first of four")
    return int(number), int(count)


def duration(option: str, text: str | None, most: float) -> float | None:
    """Parse a duration of at most *most* seconds; None stays None. Raises: UsageError."""
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--{option}: {error}", f"for example --{option} 2s") from None
    if seconds > most:
        raise UsageError(f"--{option} {text} is over {most:g} s", f"for example --{option} 2s")
    return seconds


def seconds(option: str, text: str | None) -> float:
    """Parse a duration of at most a minute; None is 0. Raises: UsageError."""
    return duration(option, text, LONGEST_GAP_S) or 0.0


def seconds_between(option: str, least: float, most: float) -> Callable[[str | float], float]:
    """Make a parser of durations from *least* to *most* seconds, which raises UsageError."""

    def parse(text: str | float) -> float:
        value = duration(option, str(text), most) or 0.0
        if value < least:
            raise UsageError(f"--{option} {text} is under {least:g} s", f"--{option} {least:g}")
        return value

    return parse


def axis_options(words: Sequence[str], description: Description) -> dict[str, str]:
    """Parse `--m 128 --n=256` as {"m": "128", "n": "256"}.

    Each name is an axis of the workload, or an option of one of its implementations.
    Raises: UnknownName, UsageError.
    """
    names = [axis.name for axis in description.axes if axis.name != "dtype"]
    names += dict.fromkeys(option for i in description.implementations for option in i.options)
    hint = "give one workload; its axes are options, such as --m 128"
    if any(word.partition("=")[0] == "--html" for word in words):
        raise UnknownName("option", "--html", (), "gpuperf show RUN --html FILE writes a page")
    return named_options(words, names, f"axes of {description.name}", hint, ("dtype", *RESERVED))


def named_options(
    words: Sequence[str], names: Sequence[str], noun: str, hint: str, others: Sequence[str] = ()
) -> dict[str, str]:
    """Parse `--m 128 --n=256` as {"m": "128", "n": "256"}; each is one of *names*.

    An unknown option is guessed from *names* and *others*; *noun* says what they are, and *hint*
    what to do about a word that is no option. Raises: UnknownName, UsageError.
    """
    values: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UsageError(f"unexpected argument {word!r}", hint)
        option, equals, value = word.partition("=")
        name = option[2:].replace("-", "_") if option[2:] not in names else option[2:]
        if name not in names:
            known = [f"--{n}" for n in (*names, *others)]
            own = ", ".join(f"--{n.replace('_', '-')}" for n in (*names, *others[:1]))
            raise UnknownName("option", option, known, f"{noun}: {own}")
        if not equals:
            if not rest:
                raise UsageError(f"{option} needs a value", f"for example {option} 4096")
            value = rest.pop(0)
        if name in values:
            raise UsageError(f"{option} is given twice", f"commas join: {option} 512,4096")
        values[name] = value
    return values
