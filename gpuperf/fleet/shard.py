"""Define the shard, the file in which one host reports its measurements to the fleet.

A shard is JSON lines: a `Head`, a `Row` for each case, device and process, and an `End` with the
number of rows and the SHA-256 of all lines before it. A file may contain several shards, one after
the other, so `cat` and `gpuperf fleet merge` both join them. A merged file also has an `Expected`
line with the hosts of the fleet, and a `Broken` line for each shard that could not be read.

Shards come from other machines: their sizes are bounded, every line is decoded into typed values,
and the texts are cleaned. The checksum detects damage; it is no signature.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from gpuperf.model.contract import Contract
from gpuperf.model.samples import LONGEST_S, SHORTEST_S
from gpuperf.model.text import clean_json, shorten

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA = 1
LARGEST_SHARD = 64 << 20  # bytes; a shard of 8 GPUs with 1,600 rows each has 2 MB
LONGEST_LINE = 1 << 20  # bytes; a head with 16 devices has 15 kB
MOST_ROWS = 200_000  # rows of one shard
MOST_PIECES = 50_000  # shards and other pieces of one file
LONGEST_CASE = 500
LONGEST_REASON = 300  # characters of what is wrong with a shard
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
START = re.compile(rb'^\{"type":"(shard|expected|broken)"', re.MULTILINE)

Fact = str | int | float | bool | None


class Device(msgspec.Struct, frozen=True):
    """One device of a host: its index, and the hard and soft facts of its fingerprint."""

    index: int
    hard: Mapping[str, Fact] = {}
    soft: Mapping[str, Fact] = {}


class Head(msgspec.Struct, tag="shard", tag_field="type", frozen=True):
    """The first line of a shard.

    `host` is the name under which the unit was started, `hostname` what the machine calls itself,
    and `machine` a hash that differs between machines. `peer` names the other host of a pair test.
    `fleet` is the id of the fleet run that started the unit. `planned` counts the rows that a
    complete shard has.
    """

    host: str
    hostname: str
    machine: str
    suite: str
    suite_hash: str
    contract: Contract
    devices: tuple[Device, ...]
    processes: int
    planned: int
    created: str = ""
    gpuperf: str = ""
    fleet: str = ""
    peer: str = ""
    schema: int = SCHEMA


class Row(msgspec.Struct, tag="row", tag_field="type", gc=False, omit_defaults=True):
    """One case on one device in one process: its median time, or why it has none; and whether
    another program was on the device."""

    case: str
    device: int
    process: int
    status: str
    time_s: float | None = None
    clock_hz: float | None = None
    reason: str = ""
    shared: bool = False


class End(msgspec.Struct, tag="end", tag_field="type", frozen=True):
    """The last line of a shard: the number of its rows, and a checksum of all lines before it."""

    rows: int
    sha256: str


class Expected(msgspec.Struct, tag="expected", tag_field="type", frozen=True, omit_defaults=True):
    """The hosts that a fleet must have, the id of the fleet run that measured them, and what that
    run asked of each: the words of its options, and a hash of its suite."""

    hosts: tuple[str, ...]
    fleet: str = ""
    asked: tuple[str, ...] = ()
    suite_hash: str = ""


class Broken(msgspec.Struct, tag="broken", tag_field="type", frozen=True, order=True):
    """A shard that could not be read: its host, if that is known, the reason, and its checksum."""

    host: str
    reason: str
    sha256: str


@dataclass(frozen=True)
class Shard:
    """A whole shard: its head, its rows in columns, and its lines as they were written.

    `cases[case[i]]` is the case of row i; `time_s` is NaN where `status` is not ok, and `shared`
    true where another program was on the device.
    """

    head: Head
    digest: str
    text: bytes
    cases: tuple[str, ...]
    case: NDArray[Any]
    device: NDArray[Any]
    process: NDArray[Any]
    time_s: NDArray[Any]
    clock_hz: NDArray[Any]
    shared: NDArray[Any]
    failures: Mapping[int, tuple[str, str]]  # row → status and reason

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.case)


Piece = Shard | Expected | Broken


def encode_shard(head: Head, rows: Iterable[Row]) -> bytes:
    """Return a shard as its file has it, after a newline that ends a broken line before it."""
    encoder = msgspec.json.Encoder()
    lines = [encoder.encode(head), *map(encoder.encode, rows)]
    body = b"\n".join(lines) + b"\n"
    end = End(len(lines) - 1, sha256(body).hexdigest())
    return b"\n" + body + encoder.encode(end) + b"\n"


def encode_line(line: Expected | Broken) -> bytes:
    """Return *line* as a merged file has it."""
    return msgspec.json.encode(line) + b"\n"


def parse_pieces(data: bytes, source: str) -> list[Piece]:
    """Return the shards, expectations and broken shards in *data*, the contents of *source*.

    Anything that cannot be read becomes a `Broken` piece with the reason.
    """
    starts = [match.start() for match in islice(START.finditer(data), MOST_PIECES + 1)]
    if len(starts) > MOST_PIECES:
        return [_broken("", f"{source} has over {MOST_PIECES:,} shards", data)]
    before = data[: starts[0]] if starts else data
    pieces: list[Piece] = []
    if before.strip() or not starts:
        reason = "does not begin with a shard" if before.strip() else "is empty"
        pieces.append(_broken("", f"{source} {reason}", before))
    for start, end in pairwise([*starts, len(data)]):
        pieces.append(_parse_piece(data[start:end].rstrip(b"\n") + b"\n", source))
    return pieces


def _parse_piece(text: bytes, source: str) -> Piece:
    host = ""
    try:
        first, _, rest = text.partition(b"\n")
        if first.startswith(b'{"type":"shard"'):
            head = _decode(first, Head)
            host = head.host
            return _parse_shard(head, text)
        if rest.strip():
            raise ValueError("has lines that belong to no shard")
        if first.startswith(b'{"type":"expected"'):
            return _checked_expected(_decode(first, Expected))
        broken: Broken = _decode(first, Broken)
        host = broken.host if is_host(broken.host) else ""
        return Broken(host, shorten(broken.reason, LONGEST_REASON), broken.sha256[:64])
    except ValueError as error:
        whose = f"the shard of {host} in {source}" if host else f"a shard in {source}"
        return _broken(host, f"{whose} {shorten(str(error), LONGEST_REASON)}", text)


def _decode(line: bytes, kind: type[Any]) -> Any:
    """Decode *line*. Raises: ValueError."""
    if len(line) > LONGEST_LINE:
        raise ValueError(f"has a line of over {LONGEST_LINE >> 20} MiB")
    try:
        return msgspec.json.decode(clean_json(line), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"has a line that is not valid: {error}") from None


def _checked_expected(expected: Expected) -> Expected:
    if not all(is_host(host) for host in expected.hosts):
        raise ValueError("expects a host whose name is not valid")
    return expected


def _parse_shard(head: Head, text: bytes) -> Shard:
    """Check and decode a shard. Raises: ValueError that says what is wrong with it."""
    _check_head(head)
    if len(text) > LARGEST_SHARD:
        raise ValueError(f"is over {LARGEST_SHARD >> 20} MiB")
    last = text.rstrip(b"\n").rfind(b"\n") + 1
    if not text.startswith(b'{"type":"end"', last):
        raise ValueError("is truncated: its last line is missing")
    body, end = text[:last], _decode(text[last:].rstrip(b"\n"), End)
    count = body.count(b"\n") - 1
    if end.rows != count:
        raise ValueError(f"is damaged: {count} of its {end.rows} rows are there")
    digest = sha256(body).hexdigest()
    if end.sha256 != digest:
        raise ValueError("is damaged: its checksum does not match its lines")
    if count != head.planned:
        raise ValueError(f"is incomplete: it has {count} of {head.planned} planned rows")
    if count > MOST_ROWS:
        raise ValueError(f"has over {MOST_ROWS:,} rows")
    return _with_columns(head, digest, text, _decode_rows(body[body.index(b"\n") + 1 :]))


def _check_head(head: Head) -> None:
    if head.schema != SCHEMA:
        raise ValueError(f"has schema {head.schema}, and this gpuperf reads {SCHEMA}")
    if not is_host(head.host) or (head.peer and not is_host(head.peer)):
        raise ValueError("is of a host whose name is not valid")
    if len({device.index for device in head.devices}) != len(head.devices) or not head.devices:
        raise ValueError("does not name each of its devices once")
    if not 1 <= head.processes <= 1000:
        raise ValueError(f"has {head.processes} processes")


def is_host(name: str) -> bool:
    """Return whether *name* can be the name of a host: letters, digits, dots and hyphens."""
    return HOST.fullmatch(name) is not None


def _decode_rows(lines: bytes) -> Sequence[Row]:
    """Decode the rows of a shard. Raises: ValueError."""
    if lines and max(map(len, lines.split(b"\n"))) > LONGEST_LINE:
        raise ValueError(f"has a line of over {LONGEST_LINE >> 20} MiB")
    if b"\\" in lines or b"\x7f" in lines or not lines.isascii():
        lines = b"\n".join(map(clean_json, lines.split(b"\n")))
    try:
        rows: list[Row] = msgspec.json.Decoder(Row).decode_lines(lines)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"has a row that is not valid: {error}") from None
    return rows


def _with_columns(head: Head, digest: str, text: bytes, rows: Sequence[Row]) -> Shard:
    """Make a shard of *rows*. Raises: ValueError for rows that do not fit the head."""
    import numpy

    if any(not 0 <= row.device < MOST_ROWS or not 0 <= row.process < MOST_ROWS for row in rows):
        raise ValueError("has a row of an impossible device or process")
    codes: dict[str, int] = {}
    case = numpy.array([codes.setdefault(row.case, len(codes)) for row in rows], numpy.int32)
    device = numpy.array([row.device for row in rows], numpy.int64)
    process = numpy.array([row.process for row in rows], numpy.int64)
    time_s = numpy.array([_time_of(row) for row in rows], float)
    clock_hz = numpy.array([row.clock_hz or math.nan for row in rows], float)
    shared = numpy.array([row.shared for row in rows], bool)
    if any(len(name) > LONGEST_CASE for name in codes):
        raise ValueError("has a case whose name is too long")
    if not set(device.tolist()) <= {each.index for each in head.devices}:
        raise ValueError("has rows of a device that its head does not name")
    if rows and process.max() >= head.processes:
        raise ValueError("has rows of a process that its head does not count")
    if len(set(zip(case.tolist(), device.tolist(), process.tolist(), strict=True))) < len(rows):
        raise ValueError("has a row twice")
    if len(codes) * len(head.devices) * head.processes != len(rows):
        raise ValueError("does not have each case on each device in each process")
    failed = {i: (r.status, r.reason) for i, r in enumerate(rows) if math.isnan(time_s[i])}
    columns = case, device, process, time_s, clock_hz, shared
    return Shard(head, digest, text, tuple(codes), *columns, failed)


def _time_of(row: Row) -> float:
    """Return the time of *row*, or NaN for one that failed. Raises: ValueError for no time."""
    if row.status != "ok":
        return math.nan
    if row.time_s is None or not SHORTEST_S < row.time_s < LONGEST_S:
        raise ValueError("has a row that is ok and has no plausible time")
    return row.time_s


def _broken(host: str, reason: str, text: bytes) -> Broken:
    return Broken(host if is_host(host) else "", reason, sha256(text.strip()).hexdigest())
