"""Are quantities and ranges read as they are written, and written as they are read?"""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuperf.units import (
    LARGEST,
    SI_FACTOR,
    format_bytes,
    format_flop_rate,
    format_number,
    format_percent,
    format_rate,
    format_si,
    format_time,
    itemsize,
    parse_duration,
    parse_number,
    parse_range,
)

sizes = st.integers(1, 2**20)


@st.composite
def ends(draw: st.DrawFn) -> tuple[int, int]:
    first, last = sorted((draw(sizes), draw(sizes)))
    return first, last


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4096", 4096),
        ("2^12", 4096),
        ("2^0", 1),
        ("8k", 8192),
        ("1M", 2**20),
        ("3G", 3 * 2**30),
        ("-64", -64),
        ("+7", 7),
        (" 128 ", 128),
        ("2^40", LARGEST),
        ("1024G", LARGEST),
    ],
)
def test_a_number_is_read(text: str, value: int) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "x", "1.5", "1e3", "8kk", "8K", "2^", "^2", "2^-1", "1,2", "0x10", "1_000", "2^3k"],
)
def test_what_is_no_whole_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number") as caught:
        parse_number(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["2^60", "2^41", "1025G", "999999999999999", "9^999", "-2^41"])
def test_an_absurd_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="beyond 2\\^40"):
        parse_number(text)


@given(st.integers(-LARGEST, LARGEST))
def test_a_number_is_read_back(value: int) -> None:
    assert parse_number(str(value)) == value


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("4096", (4096,)),
        ("128:1024", (128, 256, 512, 1024)),
        ("100:1000", (100, 200, 400, 800, 1000)),
        ("512:512", (512,)),
        ("1k:2k:+512", (1024, 1536, 2048)),
        ("1:10:+4", (1, 5, 9)),
        ("1:100:x10", (1, 10, 100)),
        ("1:50:x10", (1, 10)),
        ("2:20:x1.5", (2, 3, 4, 7, 10, 15)),
        ("1:1000:n4", (1, 10, 100, 1000)),
        ("1:3:n9", (1, 2, 3)),
        ("64,128:256,7", (64, 128, 256, 7)),
        ("64,64,32:128", (64, 32, 128)),
        (" 8 , 16 : 32 ", (8, 16, 32)),
        ("2^3:2^5", (8, 16, 32)),
    ],
)
def test_every_form_of_a_range_is_read(text: str, points: tuple[int, ...]) -> None:
    assert parse_range(text) == points


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("128,", "has an empty part"),
        (",128", "has an empty part"),
        ("128,,256", "has an empty part"),
        ("-8", "-8 in '-8' is below 1"),
        ("0", "0 in '0' is below 1"),
        ("0:8", "0 in '0:8' is below 1"),
        ("1024:128", "'1024:128' runs backwards; write 128:1024"),
        ("2^60", "beyond 2^40"),
        ("1:2^60", "beyond 2^40"),
        ("small", "'small' is not a whole number"),
        ("128:", "'' is not a whole number"),
        (":128", "'' is not a whole number"),
        ("1:2:3:4", "is not a range"),
        ("1:8:", "'1:8:' ends before its step"),
        ("1:8:2", "'2' in '1:8:2' is not one of +step, xfactor, nCOUNT"),
        ("1:8:+0", "the step of '1:8:+0' must be at least 1"),
        ("1:8:+-1", "the step of '1:8:+-1' must be at least 1"),
        ("1:8:x1", "must be a number above 1"),
        ("1:8:x0.5", "must be a number above 1"),
        ("1:8:xinf", "must be a number above 1"),
        ("1:8:xnan", "must be a number above 1"),
        ("1:8:xtwo", "must be a number above 1"),
        ("1:8:n1", "must be from 2 to 10000"),
        ("1:8:n10001", "must be from 2 to 10000"),
        ("1:2^30:+1", "has more than 10000 points"),
        ("1:2^40:x1.0001", "gives more than 10000 points"),
        ("1:9999:+1,20000:20001:+1", "has more than 10000 points"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused_with_its_text(text: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_range(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ten_thousand_points_are_the_most() -> None:
    assert len(parse_range("1:10000:+1")) == 10_000
    with pytest.raises(ValueError, match="more than 10000"):
        parse_range("1:10001:+1")


def test_the_least_number_of_an_axis_can_be_another() -> None:
    assert parse_range("0:4:+2", minimum=0) == (0, 2, 4)
    with pytest.raises(ValueError, match="below 16"):
        parse_range("8:32", minimum=16)
    with pytest.raises(ValueError, match="multiplies, so it must start at 1"):
        parse_range("0:4", minimum=0)


@given(st.lists(sizes, min_size=1, max_size=50, unique=True).map(tuple))
def test_what_is_formatted_is_parsed_back(points: tuple[int, ...]) -> None:
    assert parse_range(",".join(map(str, points))) == points


@given(st.lists(sizes, min_size=1, max_size=50).map(tuple))
def test_formatting_what_was_parsed_changes_nothing_more(points: tuple[int, ...]) -> None:
    once = parse_range(",".join(map(str, points)))
    assert len(set(once)) == len(once)
    assert parse_range(",".join(map(str, once))) == once


@given(ends())
def test_doubling_starts_with_a_and_ends_with_b(span: tuple[int, int]) -> None:
    first, last = span
    points = parse_range(f"{first}:{last}")
    assert points[0] == first
    assert points[-1] == last
    assert all(b == 2 * a for a, b in pairwise(points[:-1]))
    assert all(a < b for a, b in pairwise(points))


@given(ends(), st.integers(2, 200))
def test_points_even_in_the_logarithm_ascend_from_a_to_b(span: tuple[int, int], count: int) -> None:
    first, last = span
    points = parse_range(f"{first}:{last}:n{count}")
    assert points[0] == first
    assert points[-1] == last
    assert all(a < b for a, b in pairwise(points))
    assert len(points) <= count


@given(ends(), st.integers(1, 2**12))
def test_steps_stay_inside_and_are_even(span: tuple[int, int], step: int) -> None:
    first, last = span
    assume((last - first) // step < 10_000)
    points = parse_range(f"{first}:{last}:+{step}")
    assert points[0] == first
    assert last - step < points[-1] <= last
    assert {b - a for a, b in pairwise(points)} <= {step}


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1.6894, 3, "1.69"),
        (384.2, 3, "384"),
        (1070.4, 3, "1070"),
        (99.96, 3, "100"),
        (0.0012345, 3, "0.00123"),
        (-2.5, 2, "-2.5"),
        (0.0, 3, "0"),
        (2.483, 4, "2.483"),
    ],
)
def test_a_number_is_shown_with_its_digits(value: float, digits: int, text: str) -> None:
    assert format_number(value, digits) == text


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (format_si(9.894e14, "FLOP/s"), "989 TFLOP/s"),
        (format_si(9.9996e14, "FLOP/s"), "1.00 PFLOP/s"),
        (format_time(2.483e-6), "2.483 µs"),
        (format_time(1.357e-3), "1.357 ms"),
        (format_time(32e-9), "32.00 ns"),
        (format_time(3.779e-12), "3.779 ps"),
        (format_time(2.0), "2.000 s"),
        (format_time(0.0), "0 s"),
        (format_flop_rate(9.894e14), "989 TFLOP/s"),
        (format_flop_rate(2.5e11), "250 GFLOP/s"),
        (format_flop_rate(5e10), "50.0 GFLOP/s"),
        (format_rate(4.8e12), "4.80 TB/s"),
        (format_rate(933e9), "933 GB/s"),
        (format_bytes(268_435_456), "268 MB"),
        (format_bytes(0), "0 B"),
        (format_bytes(float("inf")), "inf B"),
        (format_percent(0.8187), "81.9 %"),
        (format_percent(0.0123), "1.23 %"),
        (format_percent(0.9996), "100 %"),
        (format_percent(1.02), "102 %"),
    ],
)
def test_quantities_are_shown_in_the_units_of_the_field(shown: str, text: str) -> None:
    assert shown == text


@given(st.floats(1e-15, 1e18))
def test_a_shown_quantity_is_within_its_last_digit(value: float) -> None:
    number, unit = format_si(value, "x").split(" ")
    prefix = unit.removesuffix("x")
    scale = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0, "m": 1e-3, "µ": 1e-6}
    shown = float(number) * (scale | {"n": 1e-9, "p": 1e-12})[prefix]
    assert shown == pytest.approx(value, rel=0.0051)
    assert "e" not in number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60.0),
        ("2 ms", 0.002),
        ("500us", 5e-4),
        ("500µs", 5e-4),
        ("0.5", 0.5),
        ("1.5min", 90.0),
        (" 3 s ", 3.0),
        ("0", 0.0),
    ],
)
def test_a_duration_is_in_seconds_unless_it_says_otherwise(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1h", "1e3", "nan", "inf", "1,5s", "1 s s", ".5s", "1s2", "9" * 10]
)
def test_what_is_no_duration_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration \(like 60s or 2ms"):
        parse_duration(text)


def test_units_have_the_factors_that_vendors_mean() -> None:
    assert SI_FACTOR["TFLOP/s"] == 1e12
    assert SI_FACTOR["TOP/s"] == 1e12
    assert SI_FACTOR["GB/s"] == 1e9
    assert SI_FACTOR["GB"] == 1e9
    assert SI_FACTOR["GiB"] == 1_073_741_824
    assert SI_FACTOR["MiB"] == 1_048_576
    assert SI_FACTOR["KiB"] == 1024
    assert SI_FACTOR["MHz"] == 1e6
    assert {u for u in SI_FACTOR if SI_FACTOR[u] == 1.0} == {
        "FLOP/s",
        "OP/s",
        "byte/s",
        "byte",
        "Hz",
        "W",
        "s",
        "count",
    }


def test_elements_have_their_size() -> None:
    sizes = {"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int32": 4}
    assert {dtype: itemsize(dtype) for dtype in sizes} == sizes
    with pytest.raises(ValueError, match="unknown dtype 'float16'; known: fp64"):
        itemsize("float16")
