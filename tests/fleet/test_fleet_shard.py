"""Is a damaged, doubled or hostile shard refused, whatever its bytes are?"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_fleet import head, rows, shard

from gpuperf.fleet import shard as module
from gpuperf.fleet.shard import Broken, Device, Expected, Shard, encode_line, encode_shard
from gpuperf.fleet.shard import parse_pieces as parse

WHOLE = shard("node01")


def only(data: bytes) -> Any:
    (piece,) = parse(data, "a file")
    return piece


def test_a_shard_is_read_as_it_was_written() -> None:
    piece = only(WHOLE)
    assert isinstance(piece, Shard)
    written = rows(head("node01"))
    assert (piece.head, piece.rows) == (head("node01"), len(written))
    read = [piece.cases[code] for code in piece.case]
    assert read == [row.case for row in written]
    assert piece.time_s.tolist() == [row.time_s for row in written]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, len(WHOLE) - 3))
def test_a_shard_that_is_cut_anywhere_is_broken(end: int) -> None:
    pieces = parse(WHOLE[:end], "a file")
    assert pieces
    assert all(isinstance(piece, Broken) for piece in pieces)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, len(WHOLE) - 2), st.integers(1, 255))
def test_a_shard_with_a_changed_byte_is_never_another_whole_shard(place: int, bits: int) -> None:
    changed = bytearray(WHOLE)
    changed[place] ^= bits
    for piece in parse(bytes(changed), "a file"):
        if isinstance(piece, Shard):  # a blank in the line that ends it
            assert piece.head == head("node01")
            assert piece.time_s.tolist() == only(WHOLE).time_s.tolist()


def test_cat_joins_shards_and_a_broken_line_costs_only_its_own_shard() -> None:
    joined = parse(WHOLE[: len(WHOLE) // 2] + shard("node02"), "a file")
    assert [type(piece) for piece in joined] == [Broken, Shard]
    assert joined[0].host == "node01"
    assert "truncated" in joined[0].reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"planned": 99}, "45 of 99 planned rows"),
        ({"schema": 2}, "schema 2"),
        ({"host": "../../etc"}, "name is not valid"),
        ({"host": "-oProxyCommand=x"}, "name is not valid"),
        ({"devices": ()}, "each of its devices"),
        ({"devices": (Device(0), Device(0)), "planned": 45}, "each of its devices"),
        ({"devices": (Device(0), Device(1)), "planned": 45}, "each case on each device"),
        ({"processes": 10**9}, "processes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_head_that_lies_is_refused(change: dict[str, Any], reason: str) -> None:
    of = msgspec.structs.replace(head("node01"), **change)
    piece = only(encode_shard(of, rows(head("node01"))))
    assert isinstance(piece, Broken)
    assert reason in piece.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"time_s": 0.0}, "no plausible time"),
        ({"time_s": None}, "no plausible time"),
        ({"time_s": 1e300}, "no plausible time"),
        ({"device": 7}, "a device that its head does not name"),
        ({"device": -1}, "impossible device"),
        ({"device": 2**63}, "impossible device"),
        ({"process": 2**62}, "impossible device or process"),
        ({"process": 5}, "a process that its head does not count"),
        ({"case": "x" * 10_000}, "too long"),
        ({"case": "copy/torch[n=4096]"}, "a row twice"),
    ],
    ids=str,
)
def test_a_row_that_lies_is_refused(change: dict[str, Any], reason: str) -> None:
    of = head("node01")
    first, *others = rows(of)
    piece = only(encode_shard(of, [msgspec.structs.replace(first, **change), *others]))
    assert isinstance(piece, Broken)
    assert reason in piece.reason


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"\x80\x04\x95pickle",
        b'{"type":"shard"',
        b'{"type":"shard","host":' + b"[" * 100_000,
        b'{"type":"expected","hosts":["a b"]}\n',
        b'{"type":"expected","hosts":["a"]}\nmore\n',
        b'{"type":"broken","host":7}\n',
        b'{"type":"shard","host":"a"}\n{"type":"end","rows":0,"sha256":""}\n',
    ],
    ids=lambda data: repr(data[:30]),
)
def test_any_bytes_are_a_reason_and_no_error(data: bytes) -> None:
    assert all(isinstance(piece, Broken) for piece in parse(data, "a file"))


def test_rows_of_endless_lines_and_numbers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 20)
    assert "over 20 rows" in only(WHOLE).reason
    monkeypatch.setattr(module, "LARGEST_SHARD", 100)
    assert "is over" in only(WHOLE).reason
    monkeypatch.setattr(module, "LONGEST_LINE", 100)
    assert "a line of over" in only(WHOLE).reason


def test_a_file_of_endless_pieces_is_one_broken_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PIECES", 10)
    line = b'{"type":"expected","hosts":["a"]}\n'
    assert len(parse(line * 10, "a file")) == 10
    assert only(line * 11).reason == "a file has over 10 shards"


def test_control_characters_of_a_stranger_are_removed() -> None:
    of = head("node01", hostname="evil\x1b[2J", suite="a\u202eb")
    piece = only(encode_shard(of, rows(of)))
    assert (piece.head.hostname, piece.head.suite) == ("evil[2J", "ab")


def test_a_failed_row_has_no_time_and_a_reason() -> None:
    of = head("node01")
    first, *others = rows(of)
    failed = msgspec.structs.replace(first, status="wrong", time_s=None, reason="error 3")
    piece = only(encode_shard(of, [failed, *others]))
    assert math.isnan(piece.time_s[0])
    assert piece.failures == {0: ("wrong", "error 3")}


def test_a_line_of_a_merged_file_is_read_again() -> None:
    for line in (Expected(("a", "b"), "id"), Broken("a", "it is cut", "0" * 64)):
        assert only(encode_line(line)) == line
