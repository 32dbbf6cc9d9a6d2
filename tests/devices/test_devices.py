"""Do our devices' figures hold, and does every device name find its own, and only its own?"""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from measured import ROOT, TESTS
from typer.testing import CliRunner

from gpuperf.devices.command import devices
from gpuperf.devices.table import device_tables, devices_table
from gpuperf.errors import UnknownName, UsageError
from gpuperf.model.peaks import Figure, Peaks, cross_check, lint, matches
from gpuperf.peaks.find import builtin_peaks, load_peaks, resolve_peaks
from gpuperf.show.render import render
from gpuperf.show.screen import Screen

FOLDER = ROOT / "configs" / "devices"
KNOWN = {peaks.id: peaks for peaks in builtin_peaks()}
IDS = [
    "a10",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "a100-sxm4-40gb",
    "a100-sxm4-80gb",
    "a10g",
    "a30",
    "a40",
    "b200",
    "b300",
    "gb200",
    "gh200-144gb",
    "gh200-96gb",
    "h100-nvl",
    "h100-pcie",
    "h100-sxm5",
    "h200-nvl",
    "h200-sxm",
    "l4",
    "l40",
    "l40s",
    "mi250x",
    "mi300x",
    "mi325x",
    "mi355x",
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "rtx-a6000",
    "t4",
    "v100-pcie",
    "v100-sxm2",
]

# Names as drivers print them (older ones without the maker's), with the SMs or CUs of the card.
NAMES = [
    ("Tesla V100-SXM2-16GB", 80, "v100-sxm2"),
    ("Tesla V100-SXM2-32GB", 80, "v100-sxm2"),
    ("Tesla V100-PCIE-16GB", 80, "v100-pcie"),
    ("Tesla V100-PCIE-32GB", 80, "v100-pcie"),
    ("Tesla T4", 40, "t4"),
    ("NVIDIA T4", 40, "t4"),
    ("NVIDIA A100-SXM4-40GB", 108, "a100-sxm4-40gb"),
    ("A100-SXM4-40GB", 108, "a100-sxm4-40gb"),
    ("NVIDIA A100-SXM4-80GB", 108, "a100-sxm4-80gb"),
    ("A100-SXM4-80GB", 108, "a100-sxm4-80gb"),
    ("A100-SXM-80GB", 108, "a100-sxm4-80gb"),
    ("NVIDIA A100-PCIE-40GB", 108, "a100-pcie-40gb"),
    ("A100-PCIE-40GB", 108, "a100-pcie-40gb"),
    ("NVIDIA A100 80GB PCIe", 108, "a100-pcie-80gb"),
    ("A100 80GB PCIe", 108, "a100-pcie-80gb"),
    ("NVIDIA A100-PCIE-80GB", 108, "a100-pcie-80gb"),
    ("NVIDIA A30", 56, "a30"),
    ("A30", 56, "a30"),
    ("NVIDIA A10", 72, "a10"),
    ("A10", 72, "a10"),
    ("NVIDIA A10G", 80, "a10g"),
    ("A10G", 80, "a10g"),
    ("NVIDIA A40", 84, "a40"),
    ("A40", 84, "a40"),
    ("NVIDIA RTX A6000", 84, "rtx-a6000"),
    ("RTX A6000", 84, "rtx-a6000"),
    ("NVIDIA GeForce RTX 3090", 82, "rtx-3090"),
    ("GeForce RTX 3090", 82, "rtx-3090"),
    ("NVIDIA L4", 58, "l4"),
    ("L4", 58, "l4"),
    ("NVIDIA L40", 142, "l40"),
    ("L40", 142, "l40"),
    ("NVIDIA L40S", 142, "l40s"),
    ("L40S", 142, "l40s"),
    ("NVIDIA GeForce RTX 4090", 128, "rtx-4090"),
    ("GeForce RTX 4090", 128, "rtx-4090"),
    ("NVIDIA H100 PCIe", 114, "h100-pcie"),
    ("H100 PCIe", 114, "h100-pcie"),
    ("NVIDIA H100 80GB HBM3", 132, "h100-sxm5"),
    (" NVIDIA H100 80GB HBM3 ", 132, "h100-sxm5"),
    ("H100 80GB HBM3", 132, "h100-sxm5"),
    ("NVIDIA H100 NVL", 132, "h100-nvl"),
    ("H100 NVL", 132, "h100-nvl"),
    ("NVIDIA H200", 132, "h200-sxm"),
    ("H200", 132, "h200-sxm"),
    ("NVIDIA H200 141GB HBM3e", 132, "h200-sxm"),
    ("NVIDIA H200 NVL", 132, "h200-nvl"),
    ("H200 NVL", 132, "h200-nvl"),
    ("NVIDIA GH200 480GB", 132, "gh200-96gb"),
    ("GH200 480GB", 132, "gh200-96gb"),
    ("NVIDIA GH200 120GB", 132, "gh200-96gb"),
    ("NVIDIA GH200 96GB HBM3", 132, "gh200-96gb"),
    ("NVIDIA GH200 144G HBM3e", 132, "gh200-144gb"),
    ("GH200 144G HBM3e", 132, "gh200-144gb"),
    ("NVIDIA B200", 148, "b200"),
    ("B200", 148, "b200"),
    ("NVIDIA GB200", 152, "gb200"),
    ("GB200", 152, "gb200"),
    ("NVIDIA B300 SXM6 AC", 148, "b300"),
    ("NVIDIA B300", 148, "b300"),
    ("NVIDIA GeForce RTX 5090", 170, "rtx-5090"),
    ("GeForce RTX 5090", 170, "rtx-5090"),
    ("AMD Instinct MI250X", 110, "mi250x"),
    ("AMD Instinct MI250X / MI250", 110, "mi250x"),
    ("AMD Instinct MI300X", 304, "mi300x"),
    ("AMD Instinct MI300X OAM", 304, "mi300x"),
    ("AMD Instinct MI300X VF", 304, "mi300x"),
    ("AMD Instinct MI325X", 304, "mi325x"),
    ("AMD Instinct MI325X VF", 304, "mi325x"),
    ("AMD Instinct Mi325X VF", 304, "mi325x"),
    ("AMD Instinct MI355X", 256, "mi355x"),
]

STRANGERS = [
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 132),
    ("NVIDIA H100 80GB HBM3", 16),
    ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 42),
    ("NVIDIA A100-SXM4-80GB", 98),
    ("NVIDIA H100 PCIe", 113),
    ("NVIDIA H100 PCIe", 132),
    ("NVIDIA B300 SXM6 AC", 152),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 76),
    ("NVIDIA GeForce RTX 4090", 76),
    ("NVIDIA GeForce RTX 4090 D", 114),
    ("NVIDIA GeForce RTX 5090 D", 170),
    ("NVIDIA GeForce RTX 5090 Laptop GPU", 82),
    ("NVIDIA GeForce RTX 3090 Ti", 84),
    ("NVIDIA GeForce RTX 3060", 28),
    ("NVIDIA H20", 78),
    ("NVIDIA H800", 132),
    ("NVIDIA A800-SXM4-80GB", 108),
    ("NVIDIA A100-SXM-64GB", 124),
    ("NVIDIA A10M", 72),
    ("NVIDIA L40G", 142),
    ("NVIDIA L20", 92),
    ("Tesla V100-SXM2-32GB-LS", 80),
    ("Tesla V100-SXM3-32GB", 80),
    ("Tesla V100S-PCIE-32GB", 80),
    ("NVIDIA GB300", 152),
    ("AMD Instinct MI250X", 220),
    ("AMD Instinct MI250X / MI250", 104),
    ("AMD Instinct MI250", 104),
    ("AMD Instinct MI300X", 38),
    ("AMD Instinct MI300A", 228),
    ("nvidia h200", 132),
    ("NVIDIA", 132),
    ("*", 132),
    ("", 132),
]


def test_every_device_has_its_file_and_is_called_like_it():
    assert sorted(KNOWN) == sorted(IDS) == sorted(f.stem for f in FOLDER.glob("*.toml"))
    assert len(IDS) == 32


@pytest.mark.parametrize("id", IDS)
def test_a_device_of_ours_gives_no_cause_for_complaint(id):
    assert lint(KNOWN[id]) == []


@pytest.mark.parametrize("id", IDS)
def test_every_peak_is_its_arithmetic_or_waived_in_words(id):
    checks = {check.ceiling: check for check in cross_check(KNOWN[id])}
    for ceiling in KNOWN[id].compute:
        if ceiling in checks:
            assert abs(checks[ceiling].difference) <= 0.015, ceiling.label
        else:
            assert len(ceiling.waiver.split()) >= 5, ceiling.label


# Printed peaks that are more than half a percent from SMs × clock × rate, in percent: the vendors
# print two or three digits, and the L40S's and the V100's are of slightly other clocks.
ROUNDED = {
    ("a30", "vector", "fp64"): 0.76,
    ("a30", "tensor", "tf32"): -0.70,
    ("b200", "vector", "fp64"): -0.60,
    ("b200", "tensor", "fp64"): -0.60,
    ("b200", "vector", "fp32"): 0.74,
    ("b300", "vector", "fp32"): 0.74,
    ("h100-nvl", "vector", "fp64"): -0.53,
    ("h100-nvl", "tensor", "fp64"): -0.53,
    ("h100-nvl", "vector", "fp32"): -0.53,
    ("h200-nvl", "vector", "fp64"): -0.53,
    ("h200-nvl", "tensor", "fp64"): -0.53,
    ("h200-nvl", "vector", "fp32"): -0.53,
    ("l4", "tensor", "tf32"): -0.96,
    ("l40s", "tensor", "fp16"): -1.19,
    ("l40s", "tensor", "bf16"): -1.19,
    ("mi355x", "tensor", "fp16"): -0.66,
    ("mi355x", "tensor", "bf16"): -0.66,
    ("mi355x", "tensor", "fp8"): -0.66,
    ("mi355x", "tensor", "int8"): -0.66,
    ("t4", "vector", "fp32"): -0.50,
    ("v100-pcie", "vector", "fp64"): -0.93,
    ("v100-pcie", "vector", "fp32"): -0.93,
    ("v100-pcie", "tensor", "fp16"): -0.93,
}


def test_only_listed_peaks_are_half_a_percent_from_their_arithmetic():
    beyond = {
        (peaks.id, check.ceiling.pipe, check.ceiling.dtype): round(100 * check.difference, 2)
        for peaks in KNOWN.values()
        for check in cross_check(peaks)
        if abs(check.difference) > 0.005
    }
    assert beyond == ROUNDED


@pytest.mark.parametrize("id", IDS)
def test_every_figure_says_where_it_is_from_and_under_which_condition(id):
    peaks = KNOWN[id]
    figures = [*peaks.figures.values(), *(c.rate for c in peaks.compute)]
    assert all(len(f.source) > 10 and f.condition for f in figures)
    assert len(peaks.sm_count_source) > 10
    assert len(peaks.pcie_source) > 10
    for ceiling in peaks.compute:
        dense = ceiling.rate.condition.startswith("dense, ")
        assert dense == (ceiling.pipe == "tensor")
        if dense:
            assert f"{ceiling.accumulate} accumulate" in ceiling.rate.condition


def second_table() -> dict[str, dict[str, str]]:
    """The figures of `data/device_figures.csv` by the device's id."""
    path = TESTS / "data" / "device_figures.csv"
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    return {row["id"]: row for row in csv.DictReader(lines)}


@pytest.mark.parametrize("id", IDS)
def test_memory_bandwidth_is_its_bus_width_times_its_data_rate(id):
    row = second_table()[id]
    computed = int(row["bus_bits"]) / 8 * float(row["gbit_per_s_per_pin"]) * 1e9
    printed = KNOWN[id].figures["memory_bandwidth"].value
    assert printed == pytest.approx(computed, rel=float(row["rounded"]))


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize(
    ("figure", "column", "unit"),
    [
        ("memory_capacity", "capacity_gb", 1e9),
        ("l2", "l2_mib", 2**20),
        ("shared_memory", "shared_kib", 2**10),
        ("tdp", "tdp_w", 1),
        ("link_bandwidth", "link_gb_per_s", 1e9),
    ],
)
def test_a_figure_without_arithmetic_is_in_a_second_table_too(id, figure, column, unit):
    expected = second_table()[id][column]
    ours = KNOWN[id].figures.get(figure)
    assert (ours is None) == (expected == ""), f"{figure} of {id}"
    if ours is not None:
        assert ours.value == float(expected) * unit


def test_the_second_table_names_every_device_and_its_sources():
    table = second_table()
    assert set(table) == set(KNOWN)
    assert all(row["source"] for row in table.values())


def test_only_the_b300_needs_waivers():
    assert {p.id for p in KNOWN.values() if any(c.waiver for c in p.compute)} == {"b300"}


@pytest.mark.parametrize(("name", "sm_count", "id"), NAMES)
def test_a_real_device_name_finds_exactly_its_own_file(name, sm_count, id):
    assert [p.id for p in KNOWN.values() if matches(p, name, sm_count)] == [id]
    assert resolve_peaks(name, sm_count) == (KNOWN[id], "")


def test_every_file_is_found_by_a_real_name():
    assert {device for _, _, device in NAMES} == set(IDS)
    assert len(NAMES) >= 60


@pytest.mark.parametrize(("name", "sm_count"), STRANGERS)
def test_a_slice_a_laptop_part_or_an_unknown_card_finds_nothing(name, sm_count):
    peaks, reason = resolve_peaks(name, sm_count)
    assert peaks is None
    assert reason.startswith(f"no peaks are known for {name.strip()!r} with {sm_count} SMs")


def test_a_known_name_with_other_sms_is_told_what_is_known():
    _, reason = resolve_peaks("NVIDIA H100 PCIe", 113)
    assert reason.endswith("the device of this name that is known has 114")


def test_no_name_belongs_to_two_devices():
    names = [name for peaks in KNOWN.values() for name in peaks.names]
    assert len(names) == len(set(names))


def figure(id: str, key: str) -> Figure:
    return KNOWN[id].figures[key]


def peak(id: str, pipe: str, dtype: str, accumulate: str = "fp32") -> float:
    wanted = (pipe, dtype, accumulate)
    (rate,) = [c.rate.value for c in KNOWN[id].compute if (c.pipe, c.dtype, c.accumulate) == wanted]
    return rate


@pytest.mark.parametrize(
    ("id", "key", "value", "unit"),
    [
        ("h200-sxm", "memory_bandwidth", 4.8e12, "byte/s"),
        ("h200-sxm", "memory_capacity", 141e9, "byte"),
        ("h200-sxm", "l2", 62_914_560, "byte"),
        ("h100-sxm5", "memory_bandwidth", 3.352e12, "byte/s"),
        ("h100-sxm5", "l2", 52_428_800, "byte"),
        ("h100-sxm5", "shared_memory", 233_472, "byte"),
        ("h100-sxm5", "link_bandwidth", 900e9, "byte/s"),
        ("a100-sxm4-80gb", "memory_bandwidth", 2.039e12, "byte/s"),
        ("a100-pcie-80gb", "memory_bandwidth", 1.935e12, "byte/s"),
        ("a100-sxm4-40gb", "l2", 41_943_040, "byte"),
        ("a100-sxm4-40gb", "boost_clock", 1.41e9, "Hz"),
        ("v100-sxm2", "memory_bandwidth", 900e9, "byte/s"),
        ("t4", "tdp", 70, "W"),
        ("t4", "link_bandwidth", 0, "byte/s"),
        ("l4", "memory_bandwidth", 300e9, "byte/s"),
        ("b200", "memory_bandwidth", 7.7e12, "byte/s"),
        ("mi300x", "llc", 268_435_456, "byte"),
        ("mi300x", "l2", 4_194_304, "byte"),
        ("mi250x", "memory_bandwidth", 1.6385e12, "byte/s"),
        ("mi250x", "memory_capacity", 64e9, "byte"),
        ("mi250x", "l2", 8_388_608, "byte"),
        ("mi250x", "shared_memory", 65_536, "byte"),
        ("mi250x", "boost_clock", 1.7e9, "Hz"),
    ],
)
def test_known_figures_stand_in_si_units(id, key, value, unit):
    assert (figure(id, key).value, figure(id, key).unit) == (value, unit)


def test_known_peaks_are_dense():
    assert peak("a100-sxm4-80gb", "tensor", "bf16") == 312e12
    assert peak("a100-sxm4-80gb", "tensor", "fp64", "fp64") == 19.5e12
    assert peak("a100-sxm4-80gb", "vector", "fp64", "fp64") == 9.7e12
    assert peak("v100-sxm2", "tensor", "fp16") == 125e12
    assert peak("l4", "tensor", "bf16") == 121e12
    assert peak("rtx-4090", "tensor", "fp8", "fp16") == 660.6e12
    assert peak("mi300x", "tensor", "fp32") == peak("mi300x", "vector", "fp32") == 163.4e12
    assert peak("mi250x", "tensor", "bf16") == 191.5e12


def test_an_a10g_is_not_an_a10():
    assert peak("a10", "tensor", "bf16") == 125e12
    assert peak("a10g", "tensor", "bf16") == 70e12


@pytest.mark.parametrize("id", ["h100-sxm5", "h200-sxm"])
def test_hopper_keeps_its_two_clocks(id):
    assert figure(id, "tensor_clock").value == 1830e6
    assert figure(id, "boost_clock").value == 1980e6
    clocks = {(c.pipe, c.dtype): c.clock_hz for c in KNOWN[id].compute}
    assert clocks["tensor", "bf16"] == 1830e6
    assert clocks["tensor", "fp64"] == clocks["vector", "fp32"] == 1980e6
    assert peak(id, "tensor", "bf16") == 989.4e12
    (check,) = [c for c in cross_check(KNOWN[id]) if c.ceiling.dtype == "bf16"]
    assert check.computed == pytest.approx(132 * 1830e6 * 4096)


def test_what_is_unknown_is_absent():
    assert "memory_capacity" not in KNOWN["v100-sxm2"].figures
    assert not [c for c in KNOWN["t4"].compute if c.dtype == "bf16"]
    assert "llc" not in KNOWN["h200-sxm"].figures


# A user's own file.


def user_file(tmp_path: Path, old: str = "", new: str = "") -> Path:
    path = tmp_path / "mine.toml"
    text = (FOLDER / "h200-sxm.toml").read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new) if old else text, encoding="utf-8")
    return path


def test_a_users_file_goes_before_ours(tmp_path):
    mine = load_peaks(user_file(tmp_path, "value = 4800", "value = 4600"))
    assert resolve_peaks("NVIDIA H200", 132, mine) == (mine, "")
    assert mine != KNOWN["h200-sxm"]


def test_a_users_file_for_another_device_is_taken_with_a_warning(tmp_path):
    mine = load_peaks(user_file(tmp_path))
    peaks, reason = resolve_peaks("NVIDIA H200 MIG 1g.18gb", 16, mine)
    assert peaks is mine
    assert "'NVIDIA H200 SXM' with 132 SMs" in reason
    assert "'NVIDIA H200 MIG 1g.18gb' with 16" in reason


def test_a_users_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = user_file(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load_peaks(path) == KNOWN["h200-sxm"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"#" * 2_000_000, "is over 200,000 bytes"),
        (b"no TOML", "not TOML"),
        (b"", "schema is missing"),
    ],
)
def test_a_users_file_that_cannot_be_read_is_a_usage_error(tmp_path, data, said):
    path = tmp_path / "mine.toml"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=said) as caught:
        load_peaks(path)
    assert "mine.toml" in str(caught.value)


def test_a_users_file_that_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no peaks file"):
        load_peaks(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="is not a regular file"):
        load_peaks(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_peaks(tmp_path / ("x" * 300))


# What is shown.

app = typer.Typer()
app.command()(devices)


def shown(*arguments: str, width: int = 150) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": str(width)}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def rendered(peaks: Peaks, width: int) -> str:
    return render(device_tables(peaks), "table", Screen(width))


def test_the_list_has_one_line_a_device():
    lines = shown().splitlines()
    for peaks in KNOWN.values():
        (line,) = [line for line in lines if line.split()[:1] == [peaks.id]]
        assert peaks.name in line
    (h200,) = [line for line in lines if line.startswith("h200-sxm ")]
    assert h200.split()[-5:] == ["132", "141", "4800", "989.4", "66.9"]


def test_doubtful_figures_are_marked_in_the_list_and_the_marks_explained():
    text = shown()
    (l4,) = [line for line in text.splitlines() if line.startswith("l4 ")]
    assert l4.split()[-5:] == ["58~", "24?", "300?", "121", "30.3"]
    assert "~ by arithmetic" in text
    assert "? recalled or conflicting" in text


def test_an_unknown_figure_is_a_dash():
    (t4,) = [line for line in shown().splitlines() if line.startswith("t4 ")]
    assert t4.split()[-2] == "–"


def test_one_device_shows_figures_conditions_sources_and_the_cross_check():
    text = shown("h200-sxm")
    (bf16,) = [line for line in text.splitlines() if line.startswith("tensor  bf16")]
    assert bf16.split()[2:9] == ["fp32", "989.4", "TFLOP/s", "1830", "4096", "989.43", "0.0"]
    assert "dense, fp32 accumulate, tensor clock" in bf16
    assert "[1] device-reported" in text
    assert "900?" in text
    assert "'NVIDIA H200'" in text


def test_a_waived_peak_is_shown_with_its_reason():
    text = shown("b300")
    (fp4,) = [line for line in text.splitlines() if line.startswith("tensor  fp4 ")]
    assert "14000?" in fp4
    assert "waived" in fp4
    assert "tensor fp4: published as 14 PFLOP/s" in text


@pytest.mark.parametrize("id", IDS)
def test_a_narrow_terminal_cuts_no_number(id):
    wide, narrow = rendered(KNOWN[id], 150), rendered(KNOWN[id], 80)
    assert "…" not in narrow
    assert all(len(line) <= 80 for line in narrow.splitlines())
    for ceiling in KNOWN[id].compute:
        number = f"{ceiling.rate.value / 1e12:.6g}"
        assert number in narrow
        assert number in wide


def test_the_list_fits_a_narrow_terminal():
    text = render([devices_table(list(KNOWN.values()))], "table", Screen(80))
    assert "…" not in text
    assert "4800" in text


def test_a_strangers_markup_is_not_obeyed():
    h200 = KNOWN["h200-sxm"]
    fake = replace(h200, name="[red]H200[/red]", notes="[link=x]y[/link]")
    text = rendered(fake, 150)
    assert "[red]H200[/red]" in text
    assert "[link=x]y[/link]" in text


def test_json_lists_devices_in_si_units():
    rows = {row["id"]: row for row in json.loads(shown("--format", "json"))}
    assert sorted(rows) == sorted(IDS)
    assert rows["h200-sxm"]["memory_bandwidth_bytes_per_s"] == 4.8e12
    assert rows["h200-sxm"]["tensor_bf16_flop_per_s"] == 989.4e12
    assert rows["l4"]["memory_bandwidth_status"] == "uncertain"
    assert rows["t4"]["tensor_bf16_flop_per_s"] is None


def test_json_of_one_device_has_all_of_it_and_the_cross_check():
    data = json.loads(shown("h200-sxm", "--format", "json"))
    assert data["figures"]["memory_bandwidth"]["value"] == 4.8e12
    assert data["figures"]["memory_bandwidth"]["status"] == "verified"
    assert len(data["cross_check"]) == len(data["compute"]) == 8
    assert data["cross_check"][0]["difference"] == pytest.approx(0.00137, abs=1e-5)


def test_csv_is_read_back_by_a_csv_reader():
    rows = list(csv.DictReader(io.StringIO(shown("--format", "csv"))))
    assert [row["id"] for row in rows] == sorted(IDS)
    rows = list(csv.DictReader(io.StringIO(shown("h200-sxm", "--format", "csv"))))
    (bf16,) = [row for row in rows if row["dtype"] == "bf16"]
    assert float(bf16["value"]) == 989.4e12
    assert (bf16["unit"], bf16["status"]) == ("FLOP/s", "verified")


def test_markdown_tables_have_as_many_cells_in_every_line():
    for arguments in (["--format", "md"], *([device, "--format", "md"] for device in IDS)):
        for block in shown(*arguments).split("\n\n"):
            lines = [line for line in block.splitlines() if line.startswith("|")]
            assert len({line.replace("\\|", "").count("|") for line in lines}) <= 1


def test_an_unknown_device_gets_the_nearest_name():
    with pytest.raises(UnknownName, match=r"no device 'h200-smx'; did you mean 'h200-sxm'\?"):
        CliRunner().invoke(app, ["h200-smx"], catch_exceptions=False)


def test_a_sound_peaks_file_is_called_sound(tmp_path):
    path = user_file(tmp_path)
    assert shown("--lint", str(path)) == (
        f"{path} is sound: NVIDIA H200 SXM, 132 SMs, 8 figures, 8 peaks\n"
    )


def test_an_unsound_peaks_file_is_complained_of_on_stdout_and_ends_in_a_usage_error(tmp_path):
    path = user_file(tmp_path, "value = 989.4", "value = 1978.9")
    result = CliRunner().invoke(app, ["--lint", str(path)])
    assert isinstance(result.exception, UsageError)
    assert result.exception.exit_code == 2
    assert "2 complaints" in str(result.exception)
    assert result.stdout.count("2:4 sparsity, so write the dense one") == 2


def test_lint_takes_no_device_and_no_format(tmp_path):
    path = str(user_file(tmp_path))
    for more in (["h200-sxm"], ["--format", "json"]):
        with pytest.raises(UsageError, match="neither a device"):
            CliRunner().invoke(app, ["--lint", path, *more], catch_exceptions=False)
