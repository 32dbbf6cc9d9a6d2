"""Parse quantities and ranges of the command line, and format quantities for the screen.

Inside gpuperf everything is SI: seconds, bytes, FLOP, byte/s, FLOP/s, hertz, watt, fractions. Only
this module converts to microseconds, GB/s and percent.
"""

from __future__ import annotations

import math
import re

LARGEST = 2**40  # no axis of a real workload is longer; 2^60 is a typing error
MOST_POINTS = 10_000  # of one range

# The units of each quantity that files may use, by its SI unit, with their factors to it.
UNITS = {
    "FLOP/s": {"FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12},
    "OP/s": {"OP/s": 1.0, "TOP/s": 1e12},
    "byte/s": {"byte/s": 1.0, "GB/s": 1e9, "TB/s": 1e12},
    "byte": {"byte": 1.0, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "MB": 1e6, "GB": 1e9},
    "Hz": {"Hz": 1.0, "MHz": 1e6, "GHz": 1e9},
    "W": {"W": 1.0},
    "s": {"s": 1.0},
    "count": {"count": 1.0},
}
SI_FACTOR = {unit: factor for units in UNITS.values() for unit, factor in units.items()}

# Bytes of one element; tf32 is stored as fp32.
_ITEMSIZE = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int32": 4}

DTYPES = tuple(_ITEMSIZE)  # the dtypes of cases; inputs may also be indices and masks
_INDEX_SIZE = {"int64": 8, "bool": 1}
_SECONDS = {"min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
_SUFFIX = {"k": 2**10, "M": 2**20, "G": 2**30}


def itemsize(dtype: str) -> int:
    """Return the bytes of one element of *dtype* (`bf16`, `fp8`, …). Raises: ValueError."""
    known = _ITEMSIZE | _INDEX_SIZE
    try:
        return known[dtype]
    except KeyError:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(known)}") from None


def parse_number(text: str) -> int:
    """Parse a whole number: `4096`, `2^12`, `8k` (= 8192), `1M` (= 2^20), `-64`.

    Raises: ValueError for other text and for numbers beyond ±2^40.
    """
    match = re.fullmatch(r"\s*([+-]?\d{1,15})(?:\^(\d{1,3})|([kMG]))?\s*", text)
    if re.fullmatch(r"\s*[+-]?\d{16,}\s*", text):
        raise ValueError(f"{text.strip()[:40]} is beyond 2^40, the largest number taken")
    if match is None:
        raise ValueError(f"{text!r} is not a whole number (like 4096, 2^12 or 8k)")
    base, power, suffix = int(match[1]), match[2], match[3]
    value = base ** int(power) if power else base * _SUFFIX.get(suffix or "", 1)
    if abs(value) > LARGEST:
        raise ValueError(f"{text.strip()} is beyond 2^40, the largest number taken")
    return value


def parse_duration(text: str) -> float:
    """Parse seconds: `60s`, `2 ms`, `500us`, `0.5`. Raises: ValueError, also if negative."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(s|ms|us|µs|min)?\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration (like 60s or 2ms)")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def parse_range(text: str, minimum: int = 1) -> tuple[int, ...]:
    """Return the points of a range in the order of the text, without repeats.

    `a:b` doubles from a and always ends with b; `a:b:+s` adds s; `a:b:xf` multiplies by f; `a:b:nK`
    gives K points evenly spaced in the logarithm, rounded; commas join ranges.

    Raises: ValueError for other text, for a number below *minimum*, and for a reversed range.
    """
    points: list[int] = []
    for part in text.split(","):
        if not part.strip():
            raise ValueError(f"{text!r} has an empty part" if text.strip() else "it is empty")
        points.extend(_expand(part.strip(), minimum))
        if len(points) > MOST_POINTS:
            raise ValueError(f"{text!r} has more than {MOST_POINTS} points")
    return tuple(dict.fromkeys(points))


def _expand(part: str, minimum: int) -> list[int]:
    fields = part.split(":")
    if len(fields) > 3:
        raise ValueError(f"{part!r} is not a range (like 128:8192 or 128:8192:+64)")
    ends = [parse_number(f) for f in fields[:2]]
    for end in ends:
        if end < minimum:
            raise ValueError(f"{end} in {part!r} is below {minimum}")
    if len(ends) == 1:
        return ends
    first, last = ends
    if first > last:
        raise ValueError(f"{part!r} runs backwards; write {last}:{first}")
    if fields[2:] == [""]:
        raise ValueError(f"{part!r} ends before its step")
    return _steps(part, first, last, fields[2] if len(fields) == 3 else "")


def _steps(part: str, first: int, last: int, step: str) -> list[int]:
    if step.startswith("+"):
        by = parse_number(step[1:])
        if by < 1:
            raise ValueError(f"the step of {part!r} must be at least 1")
        if (last - first) // by >= MOST_POINTS:
            raise ValueError(f"{part!r} has more than {MOST_POINTS} points")
        return list(range(first, last + 1, by))
    if first < 1:
        raise ValueError(f"{part!r} multiplies, so it must start at 1 or more")
    if step == "":
        return [*_multiply(first, last, 2.0), last]
    if step.startswith("x"):
        try:
            factor = float(step[1:])
        except ValueError:
            factor = math.nan
        if not 1.0 < factor < math.inf:
            raise ValueError(f"the factor of {part!r} must be a number above 1")
        return _multiply(first, last, factor)
    if step.startswith("n"):
        count = parse_number(step[1:])
        if not 2 <= count <= MOST_POINTS:
            raise ValueError(f"the count of {part!r} must be from 2 to {MOST_POINTS}")
        ratio = math.log(last / first)
        return [round(first * math.exp(ratio * i / (count - 1))) for i in range(count)]
    raise ValueError(f"{step!r} in {part!r} is not one of +step, xfactor, nCOUNT")


def _multiply(first: int, last: int, factor: float) -> list[int]:
    values: list[int] = []
    exact = float(first)
    while round(exact) <= last:
        values.append(round(exact))
        if len(values) > MOST_POINTS:
            raise ValueError(f"a factor of {factor} gives more than {MOST_POINTS} points")
        exact *= factor
    return values


_PREFIX = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))


def format_number(value: float, digits: int = 3) -> str:
    """Format *value* with *digits* significant digits and no exponent: `1.69`, `384`, `1070`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    value = float(f"{value:.{digits - 1}e}")  # 99.96 becomes 100, with three digits
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def format_si(value: float, unit: str, digits: int = 3) -> str:
    """Format *value* with an SI prefix: `format_si(9.894e14, 'FLOP/s')` is `989 TFLOP/s`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    table = _SMALL if abs(value) < 1 else _PREFIX
    scale, prefix = next(((s, p) for s, p in table if abs(value) >= s * 0.9995), table[-1])
    return f"{format_number(value / scale, digits)} {prefix}{unit}"


def format_time(seconds: float, digits: int = 4) -> str:
    """Format seconds: `2.483 µs`, `1.357 ms`."""
    return format_si(seconds, "s", digits)


def format_flop_rate(flop_per_s: float) -> str:
    """Format FLOP/s, from 1e12 on always in TFLOP/s, as vendors do."""
    if flop_per_s >= 1e12:
        return f"{format_number(flop_per_s / 1e12, 3)} TFLOP/s"
    return format_si(flop_per_s, "FLOP/s")


def format_rate(byte_per_s: float) -> str:
    """Format byte/s in decimal GB/s and TB/s, as vendors do."""
    return format_si(byte_per_s, "B/s")


def format_bytes(count: float) -> str:
    """Format bytes with a decimal prefix: `268 MB`."""
    return format_si(count, "B")


# While the wider side is at most this many times the narrower, ± shows the wider for both, so the
# interval on the screen is never too narrow.
LOPSIDED = 1.5
ALL = 100.0  # percent below the median, at which a time is 0
UNKNOWN = 1e4  # percent above the median from which on an interval is meaningless


def format_interval(median: float, low: float, high: float) -> str:
    """Format an interval: `±0.4 %`, or `−0.2/+0.9 %` if one side is much wider than the other, or
    `unknown` if the upper end is more than a hundred times the median. No time is below 0."""
    if median <= 0:
        return "±∞ %"
    low = max(low, 0.0)
    below, above = (median - low) / median * 100, (high - median) / median * 100
    if above > UNKNOWN:
        return "unknown"
    narrow, wide = sorted((below, above))
    even = wide <= LOPSIDED * narrow or digits_of_percent(narrow) == digits_of_percent(wide)
    if even and (wide < ALL or low > 0):
        return f"±{digits_of_percent(wide)} %"
    return f"−{digits_of_percent(below)}/+{digits_of_percent(above)} %"


def digits_of_percent(value: float) -> str:
    """Format a number of percent with one or two digits: `0.04`, `0.4`, `4.0`, `40`."""
    return f"{value:.2f}" if value < 0.095 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def format_percent(fraction: float) -> str:
    """Format a fraction: `81.9 %`, with three digits, and none after the point from 100 % up."""
    return f"{format_number(fraction * 100, 3) if abs(fraction) < 1 else f'{fraction * 100:.0f}'} %"
