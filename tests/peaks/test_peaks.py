"""Is a peaks file read right, and is every mistake in one found?"""

import math
from dataclasses import replace
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuperf.errors import UsageError
from gpuperf.model.codec import decode, encode
from gpuperf.model.cost import Flops
from gpuperf.model.peaks import Ceiling, Figure, Peaks, cross_check, lint, matches
from gpuperf.peaks.file import LARGEST_FILE, parse_peaks

SMALL = """\
schema = 1
id = "small"
name = "Small One"
vendor = "nvidia"
arch = "sm_90"
capability = "9.0"
names = ["Small One"]

[sm_count]
value = 100
unit = "count"
status = "verified"
source = "the data sheet"

[figures.memory_bandwidth]
value = 1
unit = "TB/s"
status = "derived"
source = "the data sheet"
condition = "theoretical"

[figures.boost_clock]
value = 2
unit = "GHz"
status = "verified"
source = "the data sheet"

[[compute]]
pipe = "tensor"
dtype = "bf16"
accumulate = "fp32"
value = 200
unit = "TFLOP/s"
status = "verified"
source = "the data sheet"
condition = "dense"
clock = "boost_clock"
flop_per_clock_per_sm = 1000
"""

SOURCE = 'source = "the data sheet"'


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_peaks(text, "mine.toml")
    assert str(caught.value).startswith("mine.toml: ")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return caught.value


def test_a_peaks_file_is_read_into_si_units():
    peaks = parse_peaks(SMALL, "mine.toml")
    assert peaks.sm_count == 100
    assert peaks.bandwidth is not None
    assert (peaks.bandwidth.value, peaks.bandwidth.unit) == (1e12, "byte/s")
    assert (peaks.bandwidth.status, peaks.bandwidth.condition) == ("derived", "theoretical")
    assert peaks.figures["boost_clock"].value == 2e9
    (ceiling,) = peaks.compute
    assert (ceiling.rate.value, ceiling.rate.unit) == (200e12, "FLOP/s")
    assert (ceiling.clock_hz, ceiling.flop_per_clock_per_sm) == (2e9, 1000)
    assert lint(peaks) == []


def test_binary_and_decimal_bytes_are_told_apart():
    table = '[figures.{}]\nvalue = 50\nunit = "{}"\nstatus = "verified"\nsource = "x"\n\n'
    both = table.format("l2", "MiB") + table.format("memory_capacity", "GB")
    figures = parse_peaks(changed("[[compute]]", both + "[[compute]]"), "").figures
    assert figures["l2"].value == 52_428_800
    assert figures["memory_capacity"].value == 50_000_000_000


def test_the_peaks_of_a_package_of_two_are_halved_but_not_its_clock():
    whole = parse_peaks(SMALL, "")
    half = parse_peaks(changed("schema = 1", "schema = 1\nlogical_devices = 2"), "")
    assert half.sm_count == 50
    assert half.bandwidth is not None
    assert half.bandwidth.value == 0.5e12
    assert "1/2 of the package" in half.bandwidth.condition
    assert half.compute[0].rate.value == 100e12
    assert half.figures["boost_clock"] == whole.figures["boost_clock"]
    assert cross_check(half)[0].difference == 0


def test_peaks_travel_through_json_unchanged():
    peaks = parse_peaks(SMALL, "")
    assert decode(encode(peaks), Peaks) == peaks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "schema is missing"),
        ("schema = ", "not TOML"),
        (changed("schema = 1", "schema = 2"), "schema is 2"),
        (changed("schema = 1", "schema = true"), "schema is True"),
        (changed("schema = 1", "schema = 1\nflavour = 3"), "'flavour'"),
        (changed("[figures.boost_clock]", "[figures.bost_clock]"), "'bost_clock'"),
        (changed('clock = "boost_clock"', 'cluck = "boost_clock"'), "compute[0]"),
        (changed('id = "small"', ""), "lacks the key 'id'"),
        (changed('id = "small"', 'id = "Small/One"'), "id is 'Small/One'"),
        (changed('id = "small"', "id = 1979-05-27"), "id should be of the type str"),
        (changed('vendor = "nvidia"', 'vendor = " "'), "vendor is empty"),
        (changed("value = 100\n", 'value = "100"\n'), "sm_count.value"),
        (changed("value = 100\n", "value = true\n"), "sm_count.value"),
        (changed("value = 100\n", "value = 100.5\n"), "sm_count.value is 100.5"),
        (changed('unit = "count"', 'unit = "W"'), "sm_count.unit is 'W'"),
        (changed("value = 1\n", "value = 0\n"), "figures.memory_bandwidth.value is 0"),
        (changed("value = 1\n", "value = -1\n"), "figures.memory_bandwidth.value is -1"),
        (changed("value = 1\n", "value = nan\n"), "figures.memory_bandwidth.value is nan"),
        (changed("value = 1\n", "value = inf\n"), "figures.memory_bandwidth.value is inf"),
        (changed("value = 1\n", "value = 1e308\n"), "figures.memory_bandwidth.value"),
        (changed("value = 1\n", f"value = {'9' * 400}\n"), "figures.memory_bandwidth.value"),
        (changed("value = 1\n", f"value = {'9' * 5000}\n"), "not TOML"),
        (changed('unit = "TB/s"', 'unit = "TFLOP/s"'), "figures.memory_bandwidth.unit"),
        (changed('unit = "TB/s"', 'unit = "GB"'), "figures.memory_bandwidth.unit"),
        (changed('unit = "GHz"', 'unit = "ghz"'), "figures.boost_clock.unit"),
        (changed('unit = "TFLOP/s"', 'unit = "TOP/s"'), "compute[0].unit"),
        (changed('dtype = "bf16"', 'dtype = "int8"'), "compute[0].unit"),
        (changed('dtype = "bf16"', 'dtype = "bf61"'), "compute[0].dtype is 'bf61'"),
        (changed('pipe = "tensor"', 'pipe = "fast"'), "compute[0].pipe is 'fast'"),
        (changed('status = "derived"', 'status = "sure"'), "memory_bandwidth.status is 'sure'"),
        (changed('clock = "boost_clock"', 'clock = "tensor_clock"'), "compute[0].clock"),
        (changed("per_sm = 1000", "per_sm = 0"), "compute[0].flop_per_clock_per_sm is 0"),
        (changed("per_sm = 1000", "per_sm = inf"), "compute[0].flop_per_clock_per_sm is inf"),
        (SMALL + SMALL[SMALL.index("[[compute]]") :], "compute[1] gives tensor bf16 fp32"),
        (SMALL + SMALL[SMALL.index("[[compute]]") :] * 200, "holds 201 peaks"),
        (changed('["Small One"]', str(["x"] * 201)), "names holds 201"),
        (changed('["Small One"]', '"Small One"'), "names should be of the type array"),
        (changed('["Small One"]', r'["\u001b[2J"]'), "names[0] holds a character"),
        (changed('name = "Small One"', r'name = "\u0007"'), "name holds a character"),
        (changed("schema = 1", "schema = 1\nlogical_devices = 0"), "logical_devices is 0"),
        (changed("schema = 1", "schema = 1\nlogical_devices = 3"), "100 over 3 logical devices"),
        (changed("schema = 1", "schema = 1\nlogical_devices = 17"), "logical_devices is 17"),
        (SMALL + "#" * LARGEST_FILE, "longer than"),
        ("a = " + "[" * 100_000, "not TOML"),
        ("schema = 1\n" + ".".join("a" * 2000) + " = 1", "a key on line 2 has over 16 parts"),
    ],
)
def test_a_bad_peaks_file_is_refused_in_one_sentence_that_names_the_key(text, said):
    assert said in str(refusal(text))


def test_a_mistyped_key_is_answered_with_the_right_one():
    assert refusal(changed("flop_per_clock_per_sm", "flops_per_clock")).hint == (
        "did you mean 'flop_per_clock_per_sm'?"
    )


def test_a_wrong_unit_is_answered_with_the_right_ones():
    assert refusal(changed('unit = "TB/s"', 'unit = "GB"')).hint == "use one of: byte/s, GB/s, TB/s"


def test_only_a_link_may_have_no_bandwidth():
    link = '\n[figures.link_bandwidth]\nvalue = 0\nunit = "GB/s"\nstatus = "verified"\n'
    assert parse_peaks(SMALL + link, "").figures["link_bandwidth"].value == 0


def test_notes_may_have_several_lines():
    text = changed("schema = 1", 'schema = 1\nnotes = """one\ntwo"""')
    assert parse_peaks(text, "").notes == "one\ntwo"


@given(st.text())
def test_any_text_is_peaks_or_a_usage_error(text):
    with pytest.raises(UsageError):
        parse_peaks(text, "mine.toml")


@given(st.sampled_from(["FLOP/s", "GFLOP/s", "TFLOP/s"]), st.floats(1e-3, 1e6))
def test_a_rate_means_the_same_in_every_unit(unit, value):
    text = changed("value = 200\n", f"value = {value!r}\n").replace("TFLOP/s", unit)
    factor = {"FLOP/s": 1, "GFLOP/s": 1e9, "TFLOP/s": 1e12}[unit]
    assert math.isclose(parse_peaks(text, "").compute[0].rate.value, value * factor, rel_tol=1e-12)


def test_a_device_matches_by_its_whole_name_and_its_sm_count():
    peaks = parse_peaks(SMALL, "")
    assert matches(peaks, "Small One", 100)
    assert matches(peaks, " Small One\n", 100)
    assert not matches(peaks, "Small One", 99)
    assert not matches(peaks, "Small One MIG 1g.10gb", 100)
    assert not matches(peaks, "small one", 100)
    assert not matches(parse_peaks(changed('["Small One"]', '["*"]'), ""), "Small One", 100)


def test_the_cross_check_is_sms_times_clock_times_rate():
    ((ceiling, computed, difference),) = cross_check(
        parse_peaks(changed("value = 200\n", "value = 210\n"), "")
    )
    assert ceiling.dtype == "bf16"
    assert computed == 100 * 2e9 * 1000
    assert difference == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (changed("value = 200\n", "value = 204\n"), "bf16 is 2.0 % above SMs × clock × rate"),
        (changed("value = 200\n", "value = 190\n"), "bf16 is 5.0 % below SMs × clock × rate"),
        (changed("value = 200\n", "value = 400\n"), "2:4 sparsity"),
        (changed('clock = "boost_clock"\n', ""), "cannot be checked"),
        (changed("flop_per_clock_per_sm = 1000\n", ""), "cannot be checked"),
        (changed("[figures.memory_bandwidth]", "[figures.link_bandwidth]"), "memory bandwidth"),
        (changed(f"{SOURCE}\n\n[[", "[["), "figures.boost_clock has no source"),
        (changed(f'{SOURCE}\ncondition = "dense"', 'source = " "'), "tensor bf16 has no source"),
        (SMALL[: SMALL.index("[[compute]]")], "no compute peak"),
        (changed('["Small One"]', "[]"), "no device name"),
        (changed('["Small One"]', '["Small.*"]'), "looks like a pattern"),
        (changed('["Small One"]', '["Small One "]'), "blanks around it"),
    ],
)
def test_a_doubtful_peaks_file_is_complained_of(text, said):
    (complaint,) = lint(parse_peaks(text, "mine.toml"))
    assert said in complaint
    assert "; " in complaint, "a complaint says what to do"


def test_a_waiver_in_words_settles_the_arithmetic():
    waived = changed("value = 200\n", 'value = 190\nwaiver = "rounded twice"\n')
    assert lint(parse_peaks(waived, "")) == []
    assert lint(parse_peaks(waived.replace("rounded twice", " "), "")) != []


def test_a_matmul_takes_the_roof_of_its_accumulate_type():
    text = (files("gpuperf.configs") / "devices" / "rtx-4090.toml").read_text(encoding="utf-8")
    peaks = parse_peaks(text, "rtx-4090.toml")

    def roof(*flops: str) -> float | None:
        ceiling = peaks.ceiling(Flops(1, *flops))  # type: ignore[arg-type]
        return ceiling.rate.value if ceiling else None

    assert roof("matmul", "fp16", "fp32") == 165.2e12
    assert roof("matmul", "fp16", "fp16") == 330.3e12
    assert roof("matmul", "fp64") == roof("elementwise", "fp64") == 1.29e12
    assert roof("elementwise", "bf16") == roof("elementwise", "fp32") == 82.6e12
    assert roof("elementwise", "int8") is None
    assert roof("special", "fp32") == roof("special", "bf16") == 128 * 16 * 2.52e9
    assert roof("special", "fp64") is None


def test_fused_multiply_adds_are_a_roof_of_the_vector_pipes_matmul():
    text = (files("gpuperf.configs") / "devices" / "h200-sxm.toml").read_text(encoding="utf-8")
    h200 = parse_peaks(text, "h200-sxm.toml")

    def vector(accumulate: str, rate: float) -> Ceiling:
        return Ceiling("vector", "fp32", accumulate, Figure(rate, "FLOP/s", "measured", "here"))

    peaks = replace(h200, compute=(vector("fp32", 53e12), vector("", 62e12)))
    for flops in (Flops(1, "matmul", "fp32", "fp32"), Flops(1, "elementwise", "fp32")):
        ceiling = peaks.ceiling(flops)
        assert ceiling is not None
        assert ceiling.rate.value == 62e12
    assert peaks.ceiling(Flops(1, "matmul", "fp32", "fp64")) is None
