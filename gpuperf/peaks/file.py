"""How is a peaks file read, and which of its mistakes are found at once?

A peaks file is TOML: one device, every number with its unit, its status and its source. It may come
from a stranger, so it is data or an error: sizes are bounded, every key is known, every unit fits
its quantity, and device names are compared whole, never as patterns.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import Any, Literal, get_args

import msgspec

from gpuperf.errors import UsageError
from gpuperf.model.peaks import Ceiling, Figure, Peaks, Pipe, Sureness
from gpuperf.model.toml import parse_toml
from gpuperf.units import SI_FACTOR

SCHEMA = 1
LARGEST_FILE = 200_000  # characters; the longest of ours has 7,000
MOST_CEILINGS = 200
MOST_NAMES = 200

# The SI unit of a quantity → the units that a file may give it in.
UNITS = {
    "FLOP/s": ("FLOP/s", "GFLOP/s", "TFLOP/s"),
    "OP/s": ("OP/s", "TOP/s"),
    "byte/s": ("byte/s", "GB/s", "TB/s"),
    "byte": ("byte", "KiB", "MiB", "GiB", "MB", "GB"),
    "Hz": ("Hz", "MHz", "GHz"),
    "W": ("W",),
    "count": ("count",),
}

Dtype = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8", "int4"]
Accumulate = Literal["fp64", "fp32", "fp16", "int32"]
Clock = Literal["boost_clock", "tensor_clock", ""]
_CHOICES = {
    "dtype": Dtype,
    "accumulate": Accumulate,
    "clock": Clock,
    "status": Sureness,
    "pipe": Pipe,
}
# What the dies of a package share out; a clock, and the shared memory of an SM, each has whole.
_SHARED_OUT = ("memory_bandwidth", "memory_capacity", "l2", "llc", "tdp", "link_bandwidth")


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table whose keys are all known."""


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
    pcie: _Pcie | None = None
    notes: str = ""
    figures: _Figures = _Figures()
    compute: tuple[_Compute, ...] = ()


_TABLES = (_File, _Figures, _Number, _Compute, _Pcie)
_QUANTITY = {
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


class _Fault(ValueError):
    """What is wrong with which key of the file (all of it, when the key is empty)."""

    def __init__(self, key: str, what: str, hint: str = "") -> None:
        super().__init__(f"{key or 'the file'} {what}")
        self.hint = hint


def parse_peaks(text: str, origin: str) -> Peaks:
    """The peaks in the TOML *text*, in SI units, per device as torch shows it.

    *origin* names the file in messages. Raises: UsageError naming the key at fault.
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
        raise _Fault("", f"is not TOML: {_shorten(str(error))}") from None
    _check_schema(tables)
    try:
        file = msgspec.convert(tables, _File)
    except msgspec.ValidationError as error:
        raise _mistyped(str(error)) from None
    _check_text(tables, "")
    return file


def _check_schema(tables: dict[str, Any]) -> None:
    """Before all else: a newer schema has other keys."""
    schema = tables.get("schema")
    if schema is None:
        raise _Fault("schema", "is missing", f"a peaks file begins with: schema = {SCHEMA}")
    if schema != SCHEMA or isinstance(schema, bool):
        raise _Fault(
            "schema",
            f"is {_shorten(repr(schema))}, and this gpuperf reads {SCHEMA}",
            "a file of a newer schema needs a newer gpuperf",
        )


def _check_text(value: object, key: str) -> None:
    """No control characters: what is printed must not steer the terminal."""
    if key == "notes" and isinstance(value, str):
        value = value.replace("\n", " ")
    if isinstance(value, str) and not value.isprintable():
        raise _Fault(key, "holds a character that cannot be printed", "write it in plain text")
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_text(inner, f"{key}.{name}" if key else name)
    if isinstance(value, list):
        for place, inner in enumerate(value):
            _check_text(inner, f"{key}[{place}]")


def _mistyped(message: str) -> _Fault:
    """msgspec's ``Object contains unknown field `x` - at `$.y` `` in our words."""
    what, _, path = message.partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL):
        known = {field for table in _TABLES for field in table.__struct_fields__}
        near = difflib.get_close_matches(unknown[1], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "every key must be known: take it out"
        return _Fault(key, f"has the unknown key {_shorten(unknown[1])!r}", hint)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return _Fault(key, f"lacks the key {missing[1]!r}")
    if choice := re.fullmatch(r"Invalid enum value (.*)", what, re.DOTALL):
        choices = get_args(_CHOICES[key.rpartition(".")[2]])
        hint = f"use one of: {', '.join(filter(None, choices))}"
        return _Fault(key, f"is {_shorten(choice[1])}, which is not known", hint)
    if wrong := re.fullmatch(r"Expected `(.*)`, got `(.*)`", what):
        return _Fault(key, f"should be of the type {wrong[1]}, and is {wrong[2]}")
    return _Fault(key, f"cannot be taken: {_shorten(what)}")


def _peaks(file: _File) -> Peaks:
    _check_head(file)
    shares = file.logical_devices
    figures = {
        key: _figure(f"figures.{key}", number, si, shares if key in _SHARED_OUT else 1)
        for key, si in _QUANTITY.items()
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
        pcie=file.pcie.value if file.pcie else "",
        pcie_status=file.pcie.status if file.pcie else "uncertain",
        pcie_source=file.pcie.source if file.pcie else "",
        notes=file.notes,
    )


def _check_head(file: _File) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", file.id):
        raise _Fault(
            "id", f"is {_shorten(file.id)!r}, not an id", "use a-z, 0-9, '-', '.', '_', at most 64"
        )
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
    """*number* in the SI unit *si*, one of *shares* equal parts of it."""
    if number.unit not in UNITS[si]:
        raise _Fault(
            f"{key}.unit",
            f"is {_shorten(number.unit)!r}, not a unit of this quantity",
            f"use one of: {', '.join(UNITS[si])}",
        )
    exact = number.value * SI_FACTOR[number.unit] / shares
    value = float(f"{exact:.15g}")  # 66.9 TFLOP/s is 66.9e12, not 66.90000000000001e12
    zero_is_fine = key == "figures.link_bandwidth"
    if not (0 < value < math.inf or (zero_is_fine and value == 0)):
        raise _Fault(
            f"{key}.value",
            f"is {number.value:g}, not a number above 0",
            "leave out what is not known",
        )
    share = f"1/{shares} of the package" if shares > 1 else ""
    return Figure(
        value=value,
        unit=si,
        status=number.status,
        source=number.source,
        condition="; ".join(filter(None, (number.condition, share))),
    )


def _shorten(text: str) -> str:
    """At most 80 characters, all of them printable."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 80 else text[:79] + "…"
