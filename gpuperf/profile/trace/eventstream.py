"""Read a chrome trace of any size, an event at a time.

The format is an object whose `traceEvents` is a list; other keys may come before or after it.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

Python's own decoder detects the end of an event and decodes it in one go (110 MB/s). msgspec is
three times as fast on a slice of the text, but needs another way to get the slice, and refuses
control characters in a name and numbers of the wrong type, both of which occur.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpuperf.errors import UsageError
from gpuperf.files import open_regular

CHUNK = 1 << 20  # bytes read at a time
LONGEST = 16 << 20  # characters of one event, or of another value beside `traceEvents`
LARGEST_TEXT = 16 << 30  # bytes after decompression
# Gzip shrinks traces 10 to 40 times, and blanks 1,000 times, which is the most it can.
MOST_RATIO, FREE_TEXT = 200, 4 << 20  # bytes of text to a byte of gzip, after so many bytes
MOST_BLANK = 16 << 20  # characters between two values
NEWS = 512 << 20  # bytes of text between two calls of `progress`
MOST_KEYS = 1000  # keys beside `traceEvents`
NEAR = 16  # characters: an error this close to the end of the text may come from that end
FACTS = ("deviceProperties", "distributedInfo")  # values beside `traceEvents` that are kept
GZIP = b"\x1f\x8b"
HINT = "torch.profiler's export_chrome_trace writes one"

SPACE = re.compile(r"\s*")
BETWEEN = re.compile(r"[\s,]*")
# Kineto does not escape names: a quote in a name breaks its own event only (torch 2.13,
# `with_stack=True`). The next event begins where an object follows an object.
BOUNDARY = re.compile(r'\}\s*(?:,\s*(?=\{\s*"(?:ph|name)")|(?=\]))')
# Categories whose times are not summed, so that an unreadable event of them may be dropped.
DISPENSABLE = re.compile(r'"cat"\s*:\s*"(?:python_function|(?:gpu_)?user_annotation)"')

# Floats stay text: a time since 1970 in µs has more digits than a double. NaN stays text too, and
# is refused later. The decoder is not strict, since names of Kineto have raw control characters.
DECODER = json.JSONDecoder(strict=False, parse_float=str, parse_constant=str)

Progress = Callable[[int], None]


class _Cut(Exception):
    """Raised where the text ends inside a value: the file broke off."""


class _Malformed(Exception):
    """Raised where the text is not JSON."""


class EventStream:
    """The events of the trace at *path*, in the file's order.

    *progress* is called with the bytes of text read, every 512 MiB. `facts` are the values of the
    keys `FACTS`; `cut` is true if the file broke off; `count` counts events, and `unreadable` those
    that are not JSON and were dropped, as no time is computed from their category.

    Raises (from the iteration): UsageError with the reason for a file that is not a trace.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self._progress = progress
        self.facts: dict[str, Any] = {}
        self.cut = False
        self.unreadable = 0
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        text = _Text(self.path, self._progress)
        has_events = False
        try:
            self._expect_object(text)
            for key in self._keys(text):
                token = text.token()
                if key != "traceEvents":
                    value = text.value(f"{key[:40]!r}")
                    self.facts |= {key: value} if key in FACTS else {}
                elif token == "[":
                    has_events = True
                    text.at += 1
                    yield from self._events(text)
                else:
                    raise UsageError(f"traceEvents of {self.path} is no list", HINT)
            if has_events and text.token():
                raise UsageError(
                    f"{self.path} goes on after the end of its trace", "are two traces in it?"
                )
        except _Cut:
            self.cut = True
        except _Malformed as error:
            raise UsageError(f"{self.path} is not JSON: {error}", HINT) from None
        if not has_events:
            raise UsageError(f"{self.path} holds no traceEvents", HINT)

    def _expect_object(self, text: _Text) -> None:
        first = text.token()
        if first == "[":
            raise UsageError(
                f"{self.path} is a bare list, not an object with traceEvents",
                "the legacy autograd profiler writes lists; torch.profiler.profile does not",
            )
        if first != "{":
            what = "is empty" if not first else "is not JSON"
            raise UsageError(f"{self.path} {what}", HINT)
        text.at += 1

    def _keys(self, text: _Text) -> Iterator[str]:
        """Yield the keys of the outermost object, with the cursor before the value of each."""
        for _ in range(MOST_KEYS):
            while (token := text.token()) == ",":
                text.at += 1
            if token == "}":
                text.at += 1
                return
            key = text.value("a key")
            if not isinstance(key, str) or text.token() not in (":", ""):
                raise _Malformed("a key or its colon is missing")
            text.at += 1
            yield key
        raise UsageError(f"{self.path} has over {MOST_KEYS} keys beside traceEvents", HINT)

    def _events(self, text: _Text) -> Iterator[Any]:
        while (token := text.token(BETWEEN)) != "]":
            if not token:
                raise _Cut
            self.count += 1
            try:
                event = text.value(f"event {self.count}")
            except _Malformed as error:
                self._pass_over(text, error)
            else:
                yield event
        text.at += 1

    def _pass_over(self, text: _Text, error: _Malformed) -> None:
        broken = text.until(BOUNDARY, f"event {self.count}")
        if not DISPENSABLE.search(broken):
            raise UsageError(
                f"{self.path} is not JSON at event {self.count}: {error}",
                "a name with a quote in it breaks Kineto's traces: rename it, or mend the event",
            )
        self.unreadable += 1


class _Text:
    """The part of a file's text that is in memory, with a cursor (`at`) in it."""

    def __init__(self, path: Path, progress: Progress | None) -> None:
        self._path = path
        self._chunks = _chunks(path, progress)
        self._text = ""
        self.at = 0

    def token(self, between: re.Pattern[str] = SPACE) -> str:
        """Skip what *between* matches, and return the next character; empty at the end."""
        blank = 0
        while True:
            match = between.match(self._text, self.at)
            blank += match.end() - self.at if match else 0
            self.at = match.end() if match else self.at
            if self.at < len(self._text):
                return self._text[self.at]
            if blank > MOST_BLANK:
                blanks = f"{MOST_BLANK >> 20} MiB of blanks or commas in a row"
                raise UsageError(f"{self._path} has over {blanks}", HINT)
            if not self._more():
                return ""

    def value(self, what: str) -> Any:
        """Read the JSON value at the cursor, and move past it; errors name it *what*.

        Raises: _Cut, _Malformed; UsageError if it is too long or nested too deep.
        """
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self.at)
            except json.JSONDecodeError as error:
                if not self._is_end(error):
                    raise _Malformed(f"{error.msg} after {self._before(error.pos)!r}") from None
            except RecursionError:
                raise UsageError(f"{what} of {self._path} is nested too deep", HINT) from None
            except ValueError as error:  # a number of thousands of digits
                raise _Malformed(str(error).partition(";")[0]) from None
            else:
                # A number that touches the end may go on in the next chunk.
                if end < len(self._text) or isinstance(value, dict | list) or not self._more():
                    self.at = end
                    return value
                continue
            self._grow(what)

    def until(self, boundary: re.Pattern[str], what: str) -> str:
        """Return the text from the cursor to the end of a match of *boundary*, and move there."""
        while not (match := boundary.search(self._text, self.at)):
            self._grow(what)
        passed = self._text[self.at : match.end()]
        self.at = match.end()
        return passed

    def _grow(self, what: str) -> None:
        if len(self._text) - self.at > LONGEST:
            raise UsageError(
                f"{what} of {self._path} is longer than {LONGEST >> 20} MiB, or never ends", HINT
            )
        if not self._more():
            raise _Cut

    def _is_end(self, error: json.JSONDecodeError) -> bool:
        """Return whether *error* may come from the end of the text that is in memory."""
        return error.msg.startswith("Unterminated") or error.pos >= len(self._text) - NEAR

    def _before(self, place: int) -> str:
        return " ".join(self._text[max(self.at, place - 40) : place].split())

    def _more(self) -> bool:
        """Read on until twice the text is in memory; return False at the end of the file.

        A long value is so decoded a few times only.
        """
        pieces = [self._text[self.at :]]
        wanted = max(1, len(pieces[0]))
        for chunk in self._chunks:
            pieces.append(chunk)
            wanted -= len(chunk)
            if wanted <= 0:
                break
        self._text, self.at = "".join(pieces), 0
        return len(pieces) > 1


def _chunks(path: Path, progress: Progress | None) -> Iterator[str]:
    """Yield the text of the file at *path*, decompressed if it is gzip. Raises: UsageError."""
    try:
        with open_regular(path) as file:
            packed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            text = gzip.GzipFile(fileobj=file) if packed else file
            yield from _decoded(text, file, path, progress)
    except FileNotFoundError:
        raise UsageError(f"{path} is not there", HINT) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UsageError(f"{path} is broken as a gzip file: {error}", "fetch it again") from None
    except OSError as error:
        what = "it is a folder" if error.errno == errno.EISDIR else error.strerror or error
        raise UsageError(f"{path} cannot be read: {what}", HINT) from None


def _decoded(
    text: gzip.GzipFile | io.BufferedReader,
    file: io.BufferedReader,
    path: Path,
    progress: Progress | None,
) -> Iterator[str]:
    """Yield chunks of *text*, which is *file* or its decompressed content.

    A gzip file that breaks off ends where it does, like a plain file: `read1` returns the text
    before that place.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    total = 0
    while True:
        try:
            data = text.read1(CHUNK)
        except EOFError:
            data = b""
        if not data:
            return
        total += len(data)
        if total > LARGEST_TEXT:
            raise UsageError(
                f"{path} holds over {LARGEST_TEXT >> 30} GiB of text", "profile fewer steps"
            )
        if total > FREE_TEXT + MOST_RATIO * file.tell():
            growth = f"{path} grows over {MOST_RATIO} times as it is decompressed"
            raise UsageError(growth, "no trace does: what wrote it?")
        if progress is not None and total // NEWS > (total - len(data)) // NEWS:
            progress(total)
        yield decoder.decode(data)
