"""Parse a peaks file, and report each of its mistakes with the key at fault.

A peaks file is TOML: one device, and every number with its unit, its status and its source. The
file may be hostile, so its size is bounded, every key must be known, every unit must fit its
quantity, and device names are compared whole, never as patterns.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import Literal, get_args, get_type_hints

import msgspec

from gpuperf.errors import UsageError
from gpuperf.model.peaks import Ceiling, Figure, Peaks, Pipe, Sureness
from gpuperf.model.text import clean, shorten
from gpuperf.model.toml import parse_toml
from gpuperf.units import UNITS

SCHEMA = 1
LARGEST_FILE = 200_000  # characters of a file; gpuperf's own have 7,000 at most
MOST_CEILINGS = 200
MOST_NAMES = 200
LONGEST = 80  # characters of a value of the file that a message repeats

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8", "int4"]
Accumulate = Literal["fp64", "fp32", "fp16", "int32"]
Clock = Literal["boost_clock", "tensor_clock", ""]
# The figures that a file may give, and their units.
FIGURES = {
    "memory_bandwidth": "byte/s",
    "memory_capacity": "byte",
    "l2": "byte",
    "llc": "byte",
    "shared_memory": "byte",
    "boost_clock": "Hz",
    "tensor_clock": "Hz",
    "tdp": "W",
    "link_bandwidth": "byte/s",
}
# Figures of a package that its dies share, unlike a clock or the shared memory of an SM.
_SHARED = ("memory_bandwidth", "memory_capacity", "l2", "llc", "tdp", "link_bandwidth")


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table that has no unknown keys."""


class _Number(_Strict, frozen=True, kw_only=True):
    value: float
    unit: str
    status: Sureness
    source: str = ""
    condition: str = ""


class _Compute(_Number, frozen=True, kw_only=True):
    pipe: Pipe
    dtype: Dtype
    accumulate: Accumulate
    clock: Clock = ""
    flop_per_clock_per_sm: float | None = None
    waiver: str = ""


class _Pcie(_Strict, frozen=True, kw_only=True):
    value: str
    status: Sureness
    source: str = ""


class _Figures(_Strict, frozen=True, kw_only=True):
    memory_bandwidth: _Number | None = None
    memory_capacity: _Number | None = None
    l2: _Number | None = None
    llc: _Number | None = None
    shared_memory: _Number | None = None
    boost_clock: _Number | None = None
    tensor_clock: _Number | None = None
    tdp: _Number | None = None
    link_bandwidth: _Number | None = None


class _File(_Strict, frozen=True, kw_only=True):
    schema: int
    id: str
    name: str
    vendor: str
    arch: str
    capability: str
    names: tuple[str, ...]
    sm_count: _Number
    logical_devices: int = 1
    pcie: _Pcie = _Pcie(value="", status="uncertain")
    notes: str = ""
    figures: _Figures = _Figures()
    compute: tuple[_Compute, ...] = ()


_KEYS = {*FIGURES, *_File.__struct_fields__, *_Compute.__struct_fields__}


class _Fault(ValueError):
    """A mistake in the value of a key, or in the whole file if the key is empty."""

    def __init__(self, key: str, mistake: str, hint: str = "") -> None:
        super().__init__(f"{key or 'the file'} {mistake}")
        self.hint = hint


def parse_peaks(text: str, origin: str) -> Peaks:
    """Return the peaks in the TOML *text*, in SI units, per device as torch shows it.

    *origin* names the file in messages. Raises: UsageError with the key at fault.
    """
    try:
        return _peaks(_read(text))
    except _Fault as fault:
        raise UsageError(f"{origin}: {fault}", fault.hint) from None


def _read(text: str) -> _File:
    if len(text) > LARGEST_FILE:
        raise _Fault("", f"is longer than {LARGEST_FILE:,} characters; it holds one device")
    try:
        tables = parse_toml(text)
    except ValueError as error:
        raise _Fault("", f"is not TOML: {_brief(str(error))}") from None
    schema = tables.get("schema")  # checked first, since a newer schema has other keys
    if schema is None:
        raise _Fault("schema", "is missing", f"a peaks file begins with: schema = {SCHEMA}")
    if schema != SCHEMA or isinstance(schema, bool):
        raise _Fault(
            "schema",
            f"is {_brief(repr(schema))}, and this gpuperf reads {SCHEMA}",
            "a file of a newer schema needs a newer gpuperf",
        )
    try:
        file = msgspec.convert(tables, _File)
    except msgspec.ValidationError as error:
        raise _mistyped(str(error)) from None
    _check_text(tables, "")
    return file


def _check_text(value: object, key: str) -> None:
    """Refuse control characters, since messages and tables print these strings."""
    if isinstance(value, str):
        text = value.replace("\n", " ") if key == "notes" else value
        if not text.isprintable():
            raise _Fault(key, "holds a character that cannot be printed", "write it in plain text")
    elif isinstance(value, dict):
        for name, inner in value.items():
            _check_text(inner, f"{key}.{name}".lstrip("."))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            _check_text(inner, f"{key}[{place}]")


def _mistyped(message: str) -> _Fault:
    """Rephrase msgspec's ``Object contains unknown field `x` - at `$.y` ``."""
    mistake, _, path = message.partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", mistake, re.DOTALL):
        near = difflib.get_close_matches(match[1], _KEYS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "remove this key"
        return _Fault(key, f"has the unknown key {_brief(match[1])!r}", hint)
    if match := re.fullmatch(r"Object missing required field `(.*)`", mistake):
        return _Fault(key, f"lacks the key {match[1]!r}")
    if match := re.fullmatch(r"Invalid enum value (.*)", mistake, re.DOTALL):
        choices = get_args(get_type_hints(_Compute)[key.rpartition(".")[2]])
        hint = f"use one of: {', '.join(filter(None, choices))}"
        return _Fault(key, f"is {_brief(match[1])}, which is unknown", hint)
    if match := re.fullmatch(r"Expected `(.*)`, got `(.*)`", mistake):
        return _Fault(key, f"should be of the type {match[1]}, and is {match[2]}")
    return _Fault(key, f"is invalid: {_brief(mistake)}")


def _peaks(file: _File) -> Peaks:
    _check_head(file)
    shares = file.logical_devices
    figures = {
        key: _figure(f"figures.{key}", number, si, shares if key in _SHARED else 1)
        for key, si in FIGURES.items()
        if (number := getattr(file.figures, key)) is not None
    }
    return Peaks(
        id=file.id,
        name=file.name,
        vendor=file.vendor,
        arch=file.arch,
        capability=file.capability,
        names=file.names,
        sm_count=_sm_count(file),
        compute=_ceilings(file, figures),
        figures=figures,
        sm_count_status=file.sm_count.status,
        sm_count_source=file.sm_count.source,
        pcie=file.pcie.value,
        pcie_status=file.pcie.status,
        pcie_source=file.pcie.source,
        notes=file.notes,
    )


def _check_head(file: _File) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", file.id):
        hint = "use a-z, 0-9, '-', '.', '_', at most 64"
        raise _Fault("id", f"is {_brief(file.id)!r}, not an id", hint)
    for key in ("name", "vendor", "arch", "capability"):
        if not getattr(file, key).strip():
            raise _Fault(key, "is empty")
    if len(file.names) > MOST_NAMES:
        raise _Fault("names", f"holds {len(file.names)} names, more than {MOST_NAMES}")
    if not 1 <= file.logical_devices <= 16:
        raise _Fault("logical_devices", f"is {file.logical_devices}, not a number from 1 to 16")
    if len(file.compute) > MOST_CEILINGS:
        raise _Fault("compute", f"holds {len(file.compute)} peaks, more than {MOST_CEILINGS}")


def _sm_count(file: _File) -> int:
    count = _figure("sm_count", file.sm_count, "count", file.logical_devices).value
    if count != int(count):
        parts = f" over {file.logical_devices} logical devices" if file.logical_devices > 1 else ""
        raise _Fault("sm_count.value", f"is {file.sm_count.value:g}{parts}, not a whole number")
    return int(count)


def _ceilings(file: _File, figures: dict[str, Figure]) -> tuple[Ceiling, ...]:
    ceilings: dict[tuple[str, str, str], Ceiling] = {}
    for place, entry in enumerate(file.compute):
        key = f"compute[{place}]"
        kind = (entry.pipe, entry.dtype, entry.accumulate)
        if kind in ceilings:
            raise _Fault(key, f"gives {' '.join(kind)} a second time", "keep the dense one")
        ceilings[kind] = _ceiling(key, entry, figures, file.logical_devices)
    return tuple(ceilings.values())


def _ceiling(key: str, entry: _Compute, figures: dict[str, Figure], shares: int) -> Ceiling:
    if entry.clock and entry.clock not in figures:
        raise _Fault(f"{key}.clock", f"names a figure that is not given: {entry.clock}")
    rate = entry.flop_per_clock_per_sm
    if rate is not None and not 0 < rate < math.inf:
        raise _Fault(f"{key}.flop_per_clock_per_sm", f"is {rate:g}, not a number above 0")
    return Ceiling(
        pipe=entry.pipe,
        dtype=entry.dtype,
        accumulate=entry.accumulate,
        rate=_figure(key, entry, "OP/s" if entry.dtype.startswith("int") else "FLOP/s", shares),
        clock_hz=figures[entry.clock].value if entry.clock else None,
        flop_per_clock_per_sm=rate,
        waiver=entry.waiver,
    )


def _figure(key: str, number: _Number, si: str, shares: int) -> Figure:
    """Convert *number* to the SI unit *si*, and divide it by *shares*."""
    if number.unit not in UNITS[si]:
        mistake = f"is {_brief(number.unit)!r}, not a unit of this quantity"
        raise _Fault(f"{key}.unit", mistake, f"use one of: {', '.join(UNITS[si])}")
    exact = number.value * UNITS[si][number.unit] / shares
    value = float(f"{exact:.15g}")  # 66.9 TFLOP/s is 66.9e12, not 66.90000000000001e12
    may_be_zero = key == "figures.link_bandwidth"
    if not (0 < value < math.inf or (may_be_zero and value == 0)):
        mistake = f"is {number.value:g}, not a number above 0"
        raise _Fault(f"{key}.value", mistake, "leave out what is not known")
    share = f"1/{shares} of the package" if shares > 1 else ""
    condition = "; ".join(filter(None, (number.condition, share)))
    return Figure(value, si, number.status, number.source, condition)


def _brief(text: str) -> str:
    return shorten(clean(text), LONGEST)
