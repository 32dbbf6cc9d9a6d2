"""Read a trace of requests from a CSV file, as data: nothing of it is trusted.

The columns are those of vidur's processed traces, or those of the Azure traces themselves.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.files import read_regular
from gpuperf.theory.serving.load import Load

MOST_BYTES, MOST_ROWS = 2**26, 2**20  # of a file
MOST_TOKENS = 2**24  # of a prompt or an output
MOST_SECONDS, LONGEST = 1e11, 1e7  # of an arrival, which may count from 1970; of a trace
VIDUR = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
HINT = f"a header {','.join(VIDUR)}, then a request a line: 0.5,374,44"


def read_trace(path: Path) -> Load:
    """Return the requests of the CSV file *path*, sorted by their arrival, the first at 0 s.

    Raises: UsageError for a file that cannot be read, has no requests or over 2^20, and for
    missing, negative or absurd values.
    """
    try:
        text = read_regular(path, MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise _refused(path, f"{error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _refused(path, "it is not text") from None
    requests = sorted(_requests(path, text))
    if not requests:
        raise _refused(path, "it has no requests")
    arrival, prompt, output = zip(*requests, strict=True)
    if arrival[-1] - arrival[0] > LONGEST:
        raise _refused(path, f"its arrivals span {arrival[-1] - arrival[0]:.3g} s")
    return Load([each - arrival[0] for each in arrival], list(prompt), list(output))


def _requests(path: Path, text: str) -> Iterator[tuple[float, int, int]]:
    rows = csv.reader(text.splitlines())
    try:
        head = [name.strip() for name in next(rows, [])]
        names = next((names for names in (VIDUR, AZURE) if set(names) <= set(head)), None)
        if names is None:
            wanted = ", ".join(name for name in VIDUR if name not in head)
            raise _refused(path, f"its header lacks {wanted}")
        places = [head.index(name) for name in names]
        parse = (_seconds if names == VIDUR else _date, _tokens, _tokens)
        for count, row in enumerate(rows, 1):
            if count > MOST_ROWS:
                raise _refused(path, f"it has over {MOST_ROWS:,} requests")
            if row:
                arrival, prompt, output = (
                    _value(path, rows.line_num, name, row, place, of)
                    for name, place, of in zip(names, places, parse, strict=True)
                )
                yield arrival, int(prompt), int(output)
    except csv.Error as error:
        raise _refused(path, f"line {rows.line_num} is no CSV ({error})") from None


def _value(
    path: Path, line: int, name: str, row: list[str], place: int, parse: Callable[[str], float]
) -> float:
    text = row[place].strip() if place < len(row) else ""
    if not text:
        raise _refused(path, f"line {line} has no {name}")
    try:
        return parse(text)
    except ValueError as error:
        raise _refused(path, f"line {line} has the {name} {text[:40]!r}, {error}") from None


def _seconds(text: str) -> float:
    """Parse seconds of at least 0. Raises: ValueError."""
    value = _number(text)
    if value < 0:
        raise ValueError("which is negative")
    if value > MOST_SECONDS:
        raise ValueError(f"which is over {MOST_SECONDS:g} s")
    return value


def _date(text: str) -> float:
    """Parse a date and a time as seconds; digits of nanoseconds are dropped. Raises: ValueError."""
    try:
        return datetime.fromisoformat(text[:26]).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError("which is not a date") from None


def _tokens(text: str) -> int:
    """Parse a number of tokens. Raises: ValueError."""
    value = _number(text)
    if value != int(value):
        raise ValueError("which is not whole")
    if value < 1:
        raise ValueError("which is not positive")
    if value > MOST_TOKENS:
        raise ValueError(f"which is over {MOST_TOKENS:,} tokens")
    return int(value)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError("which is not a number")
    return value


def _refused(path: Path, reason: str) -> UsageError:
    return UsageError(f"cannot read the trace {str(path)!r}: {reason}", HINT)
