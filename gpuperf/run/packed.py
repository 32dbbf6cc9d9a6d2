"""Pack the text of a large run file into a third of what gzip makes of it, and unpack it exactly.

Most of a run file are its samples, and their digits compress badly as text. So the arrays of
samples are taken out of the text and written as whole numbers: the distances from the least one, in
steps of their greatest common divisor, byte by byte. The text without them, a line of JSON about
the arrays, the times and the clocks are then compressed by xz, each on its own.

An array that is not written as `msgspec` writes it stays in the text, so no byte is lost.
"""

from __future__ import annotations

import lzma
import math
import re
from collections.abc import Iterator, Sequence

import msgspec

ARRAY = re.compile(rb'"(values_s|sm_clock_hz)":\[([0-9][^\]"]*)\]')
# In the place of an array, and of one that equals the array before it, as the span of one kernel
# equals its busy time.
MARK, AGAIN = b'":[~]', b'":[=]'
PLACE = re.compile(rb'"(values_s|sm_clock_hz)":\[([~=])\]')
NAMES = (b"values_s", b"sm_clock_hz")
WIDEST = 4  # bytes of a distance; of more, which are arithmetic noise, text compresses better
MOST_SAMPLES, LONGEST = 32 << 20, 1 << 16  # in one file, and in one array
MOST_EXPONENT = 400
TEXT: list[dict[str, int]] = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
NUMBERS: list[dict[str, int]] = [{**TEXT[0], "lc": 0, "lp": 0, "pb": 0}]

Head = tuple[int, int, int, int, int]  # count, exponent of ten, least number, step, bytes of each


class Expanded(Exception):
    """A packed run that is larger than its bound."""


def pack(text: bytes) -> bytes | None:
    """Return *text* packed; None for a text that contains the mark of an array."""
    if MARK in text or AGAIN in text:
        return None
    heads: list[Head] = []
    last = dict.fromkeys(NAMES, b"")
    streams = {name: bytearray() for name in NAMES}

    def taken(match: re.Match[bytes]) -> bytes:
        name, body = match[1], match[2]
        if body == last[name]:
            return b'"' + name + AGAIN
        packed = _array(body)
        if packed is None:
            return match[0]
        last[name] = body
        heads.append(packed[0])
        streams[name] += packed[1]
        return b'"' + name + MARK

    rest = ARRAY.sub(taken, text)
    columns = [list(column) for column in zip(*heads, strict=True)]
    numbers = (msgspec.json.encode(columns), *map(bytes, streams.values()))
    parts = [_compress(rest, TEXT), *(_compress(part, NUMBERS) for part in numbers)]
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def unpack(packed: bytes, most: int) -> bytes:
    """Return the text that *packed* contains.

    Raises: Expanded if it has over *most* bytes, ValueError for other bytes than of `pack`.
    """
    try:
        rest, head, times, clocks = (_expand(part, most) for part in _parts(packed))
        columns = msgspec.json.decode(head, type=list[list[int]])
        heads = list(zip(*columns, strict=True)) if columns else []
        return _with_arrays(rest, heads, dict(zip(NAMES, (times, clocks), strict=True)), most)
    except (lzma.LZMAError, msgspec.DecodeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _array(body: bytes) -> tuple[Head, bytes] | None:
    """Return the head and the distances of the array *body*; None for one that is not exact."""
    try:
        exponent, numbers = _whole(body)
    except ValueError:
        return None
    least = min(numbers)
    step = math.gcd(*(number - least for number in numbers)) or 1
    far = [(number - least) // step for number in numbers]
    width = (max(far).bit_length() + 7) // 8
    if (
        len(far) > LONGEST
        or width > WIDEST
        or abs(exponent) > MOST_EXPONENT
        or max(numbers) >= 1 << 63
    ):
        return None
    if _written(numbers, exponent) != body:
        return None
    planes = b"".join(bytes((each >> 8 * i) & 255 for each in far) for i in range(width))
    return (len(far), exponent, least, step, width), planes


def _whole(body: bytes) -> tuple[int, list[int]]:
    """Return an exponent of ten, and the numbers of *body* in units of that power.

    Raises: ValueError for a text that is not a number.
    """
    parsed = []
    for word in body.split(b","):
        digits, _, power = word.partition(b"e")
        whole, _, fraction = digits.partition(b".")
        fraction = fraction.rstrip(b"0")
        parsed.append((int(whole + fraction), int(power or b"0") - len(fraction)))
    least = min(exponent for _, exponent in parsed)
    if max(exponent for _, exponent in parsed) - least > MOST_EXPONENT:
        raise ValueError("the numbers differ by more than a float's range")
    return least, [number * 10 ** (exponent - least) for number, exponent in parsed]


def _written(numbers: Sequence[int], exponent: int) -> bytes:
    return msgspec.json.encode([float(f"{number}e{exponent}") for number in numbers])[1:-1]


def _with_arrays(
    rest: bytes, heads: Sequence[Sequence[int]], streams: dict[bytes, bytes], most: int
) -> bytes:
    """Return *rest* with the arrays in their places. Raises: ValueError, Expanded."""
    if sum(head[0] for head in heads) > MOST_SAMPLES:
        raise Expanded
    offsets, last = dict.fromkeys(streams, 0), dict.fromkeys(streams, b"")
    left, size = iter(heads), 0

    def put(match: re.Match[bytes]) -> bytes:
        nonlocal size
        name = match[1]
        if match[2] == b"~":
            head = next(left, None)
            if head is None:
                raise ValueError("an array is missing")
            start = offsets[name]
            offsets[name] = end = start + head[0] * head[4]
            last[name] = _numbers(head, streams[name][start:end])
        size += len(last[name])
        if size > most:
            raise Expanded
        return b'"' + name + b'":[' + last[name] + b"]"

    text = PLACE.sub(put, rest)
    if next(left, None) is not None:
        raise ValueError("an array has no place")
    return text


def _numbers(head: Sequence[int], planes: bytes) -> bytes:
    """Return the numbers of an array, as it is written. Raises: ValueError."""
    count, exponent, least, step, width = head
    if not (0 < count <= LONGEST and 0 <= width <= WIDEST and len(planes) == count * width):
        raise ValueError("an array is cut off")
    if abs(exponent) > MOST_EXPONENT:
        raise ValueError("an array has no numbers")
    return _written([least + step * far for far in _distances(planes, count)], exponent)


def _distances(planes: bytes, count: int) -> list[int]:
    far = [0] * count
    for i in range(len(planes) // count):
        for place, byte in enumerate(planes[i * count : (i + 1) * count]):
            far[place] |= byte << 8 * i
    return far


def _parts(packed: bytes) -> Iterator[bytes]:
    at = 0
    for _ in range(4):
        size = int.from_bytes(packed[at : at + 4], "little")
        part = packed[at + 4 : at + 4 + size]
        if len(part) < size or not size:
            raise ValueError("it is cut off")
        yield part
        at += 4 + size


def _compress(data: bytes, filters: list[dict[str, int]]) -> bytes:
    return lzma.compress(data, lzma.FORMAT_XZ, filters=filters)


def _expand(part: bytes, most: int) -> bytes:
    """Return the bytes in *part*. Raises: Expanded, lzma.LZMAError."""
    expander = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=256 << 20)
    data = expander.decompress(part, most + 1)
    if len(data) > most:
        raise Expanded
    if not expander.eof:
        raise ValueError("it is cut off")
    return data
