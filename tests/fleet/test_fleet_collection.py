"""Is merging a union, and are links, FIFOs and other files refused without waiting?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import CommandLine
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_fleet import NAMES, shard, written

from gpuperf.errors import UsageError
from gpuperf.fleet.collection import collect, encode_collection, parse_hosts, read_collection
from gpuperf.fleet.shard import Broken, Expected, Piece, parse_pieces

PIECES: list[Piece] = [
    *(piece for name in NAMES[:4] for piece in parse_pieces(shard(name), "a file")),
    *parse_pieces(shard("node02", {"all": 0.1}), "a file"),
    *parse_pieces(shard("node09")[:500], "a file"),
    Expected(("node00", "node01"), "one"),
    Expected(("node01", "node02"), "two"),
]


def merged(pieces: list[Piece]) -> bytes:
    return encode_collection(collect(pieces))


@settings(max_examples=40, deadline=None)
@given(st.permutations(PIECES), st.lists(st.sampled_from(PIECES)), st.integers(0, len(PIECES)))
def test_merging_is_a_union(pieces: list[Piece], again: list[Piece], cut: int) -> None:
    """In any order, with any of them once more, and in any parts."""
    once = merged(list(PIECES))
    assert merged([*pieces, *again]) == once
    parts = [merged(pieces[:cut]), merged(pieces[cut:])]
    read = [piece for part in parts if part for piece in parse_pieces(part, "a merged file")]
    assert merged(read) == once


def test_files_and_folders_are_read_alike(tmp_path: Path) -> None:
    folder = written(tmp_path / "shards", {name: shard(name) for name in NAMES[:3]}, NAMES[:3])
    one = read_collection([folder])
    joined = tmp_path / "joined.jsonl"
    joined.write_bytes(b"".join(path.read_bytes() for path in sorted(folder.iterdir())))
    assert encode_collection(read_collection([joined])) == encode_collection(one)
    assert [s.head.host for s in one.shards] == list(NAMES[:3])
    assert read_collection([folder, joined]).repeated == NAMES[:3]


def test_links_fifos_and_devices_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "shards", {"node00": shard("node00")})
    (tmp_path / "secret").write_bytes(shard("node01"))
    (folder / "node01.jsonl").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "node02.jsonl")
    (folder / "node03.jsonl").symlink_to("/dev/zero")
    (folder / "node04.jsonl").mkdir()
    collection = read_collection([folder])
    assert [s.head.host for s in collection.shards] == ["node00"]
    reasons = {broken.host: broken.reason for broken in collection.broken}
    assert set(reasons) == {"node01", "node02", "node03", "node04"}
    assert "symbolic link" in reasons["node01"]
    assert "not a regular file" in reasons["node02"]


def test_the_shard_of_another_host_is_broken(tmp_path: Path) -> None:
    texts = {"node00": shard("node00"), "node01": shard("node00", {"all": 0.2})}
    collection = read_collection([written(tmp_path / "shards", texts)])
    assert [b.reason for b in collection.broken if isinstance(b, Broken)] == [
        "the shard in node01.jsonl reports the name of node00"
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "names no host"),
        ("a,a", "names a twice"),
        ("a,-b", "'-b' is not the name of a host"),
        ("a;rm -rf,b", "is not the name of a host"),
        ("a$(x)", "is not the name of a host"),
        ("@missing.txt", "cannot be read"),
    ],
)
def test_names_of_hosts_are_checked(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("$", r"\$")):
        parse_hosts(text)


def test_hosts_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("# racks\nnode1\n\n node2.cluster.local \n")
    assert parse_hosts(f"@{tmp_path / 'hosts.txt'}") == ("node1", "node2.cluster.local")


def test_the_command_merges_and_reports_what_is_wrong(tmp_path: Path) -> None:
    at = CommandLine.at(tmp_path)
    written(tmp_path / "shards", {name: shard(name) for name in NAMES[:3]}, NAMES[:3])
    ended = at.within("fleet", "merge", "shards", "--out", "all.jsonl")
    assert (ended.code, ended.out) == (0, "3 hosts, 135 rows: all.jsonl\n")
    again = at.within("fleet", "merge", "all.jsonl", "shards", "--out", "again.jsonl")
    assert again.code == 0
    assert "the shard of node01 was read twice, and counts once" in again.err
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()
    lost = at.within("fleet", "merge", "all.jsonl", "--hosts", "node00,node07", "--out", "x.jsonl")
    assert lost.code == 4
    assert "hosts are missing: node07" in lost.err
    (tmp_path / "shards" / "node02.jsonl").write_bytes(shard("node02")[:900])
    cut = at.within("fleet", "merge", "shards", "--out", "x.jsonl")
    assert cut.code == 4
    assert "the shard of node02 in node02.jsonl is truncated" in cut.err
    none = at.within("fleet", "merge", "nowhere")
    assert none.code == 2
    assert "there is no file 'nowhere'" in none.err
