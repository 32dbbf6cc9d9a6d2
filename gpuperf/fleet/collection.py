"""Read the shards of a fleet, and merge them.

A collection is three sets: whole shards and broken ones, each by its checksum, and expected hosts.
Merging is the union of these sets, so the order of the files does not matter, and merging a shard
once more changes nothing. Folders are read one level deep; links, FIFOs and devices in them are
refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.files import read_regular
from gpuperf.fleet.shard import Broken, Expected, Piece, Shard, encode_line, is_host, parse_pieces
from gpuperf.model.text import clean

LARGEST_FILE = 2 << 30  # bytes; 1,000 hosts of 1,600 rows have 200 MB
MOST_FILES = 20_000
SUFFIX = ".jsonl"
EXPECTED = "expected.jsonl"  # file of a fleet run with the names of its hosts
HINT = "`gpuperf fleet unit` writes shards, and `gpuperf fleet merge` joins them"


@dataclass(frozen=True)
class Collection:
    """The shards of a fleet, in the order of their hosts.

    `repeated` names the hosts whose identical shard was read more than once. `expected` is None if
    the hosts of the fleet are not known.
    """

    shards: tuple[Shard, ...] = ()
    broken: tuple[Broken, ...] = ()
    expected: Expected | None = None
    fleets: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()


def read_collection(paths: Sequence[Path]) -> Collection:
    """Read the shards in *paths*, files or folders of files.

    Raises: UsageError for a path that cannot be read; what is in the files never raises.
    """
    pieces: list[Piece] = []
    files = [file for path in paths for file in _files_of(path)]
    if not files:
        raise UsageError(f"{', '.join(map(str, paths))[:200]} has no shard", HINT)
    if len(files) > MOST_FILES:
        raise UsageError(f"there are over {MOST_FILES:,} files of shards", "merge them in parts")
    names = {file.name.removesuffix(SUFFIX) for file in files}
    for file in files:
        pieces += _renamed(_read(file), file, names)
    return collect(pieces)


def collect(pieces: Iterable[Piece]) -> Collection:
    """Return the union of *pieces*."""
    shards: dict[str, Shard] = {}
    broken: dict[str, Broken] = {}
    hosts: set[str] = set()
    fleets: set[str] = set()
    asked: set[tuple[tuple[str, ...], str]] = set()
    repeated: set[str] = set()
    expects = False
    for piece in pieces:
        if isinstance(piece, Shard):
            if piece.digest in shards:
                repeated.add(piece.head.host)
            shards[piece.digest] = piece
        elif isinstance(piece, Broken):
            known = broken.get(piece.sha256, piece)
            broken[piece.sha256] = min(known, piece)
        else:
            expects = True
            hosts.update(piece.hosts)
            fleets.update({piece.fleet} - {""})
            asked.add((piece.asked, piece.suite_hash))
    one = asked.pop() if len(asked) == 1 else ((), "")
    expected = Expected(tuple(sorted(hosts)), min(fleets, default=""), *one) if expects else None
    ordered = sorted(shards.values(), key=lambda shard: (shard.head.host, shard.digest))
    return Collection(
        tuple(ordered),
        tuple(sorted(broken.values())),
        expected,
        tuple(sorted(fleets)),
        tuple(sorted(repeated)),
    )


def encode_collection(collection: Collection) -> bytes:
    """Return the merged file of *collection*; equal sets give equal bytes."""
    parts = []
    if collection.expected is not None:
        fleets = collection.fleets or ("",)
        parts += [encode_line(Expected(collection.expected.hosts, fleet)) for fleet in fleets]
    parts += [encode_line(broken) for broken in collection.broken]
    parts += [shard.text for shard in collection.shards]
    return b"".join(parts)


def with_expected(collection: Collection, hosts: Sequence[str]) -> Collection:
    """Return *collection* with *hosts* as its expected hosts, in place of those it has."""
    from dataclasses import replace

    fleet = collection.expected.fleet if collection.expected else ""
    return replace(collection, expected=Expected(tuple(sorted(set(hosts))), fleet))


def parse_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts that `--hosts` names: `a,b,c`, or the lines of a file `@hosts.txt`.

    Raises: UsageError for an empty, doubled or invalid name, and for an unreadable file.
    """
    words = _host_lines(Path(text[1:])) if text.startswith("@") else text.split(",")
    hosts = [word.strip() for word in words if word.strip()]
    if not hosts:
        raise UsageError("--hosts names no host", "--hosts node1,node2, or --hosts @hosts.txt")
    for host in hosts:
        if not is_host(host):
            raise UsageError(
                f"{clean(host)[:80]!r} is not the name of a host",
                "a name has letters, digits, dots and hyphens",
            )
        if hosts.count(host) > 1:
            raise UsageError(f"--hosts names {host} twice", "name each host once")
    return tuple(hosts)


def _host_lines(path: Path) -> list[str]:
    try:
        text = read_regular(path, 1 << 20).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"the file of hosts {str(path)!r} cannot be read: {reason}", "one host a line"
        ) from None
    return [line for line in text.splitlines() if not line.lstrip().startswith("#")]


def _files_of(path: Path) -> list[Path]:
    """Return the file *path*, or the shards in the folder *path*. Raises: UsageError."""
    try:
        if path.is_dir() and not path.is_symlink():
            with os.scandir(path) as entries:
                return sorted(Path(e.path) for e in entries if e.name.endswith(SUFFIX))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{str(path)!r} cannot be read: {reason}", HINT) from None
    if not path.exists() and not path.is_symlink():
        raise UsageError(f"there is no file {str(path)!r}", HINT)
    return [path]


def _read(file: Path) -> list[Piece]:
    name = clean(file.name)[:200]
    try:
        if file.is_symlink():
            raise OSError(0, "it is a symbolic link")
        data = read_regular(file, LARGEST_FILE)
    except OSError as error:
        host = file.name.removesuffix(SUFFIX)
        reason = f"{name} cannot be read: {error.strerror}"
        mark = sha256(reason.encode(errors="replace")).hexdigest()
        return [Broken(host if is_host(host) else "", reason, mark)]
    return parse_pieces(data, name)


def _renamed(pieces: list[Piece], file: Path, names: set[str]) -> list[Piece]:
    """Mark a shard whose file has the name of another host of the collection as broken."""
    stem = file.name.removesuffix(SUFFIX)
    shards = [piece for piece in pieces if isinstance(piece, Shard)]
    if len(pieces) != 1 or not shards or shards[0].head.host == stem or not is_host(stem):
        return pieces
    host = shards[0].head.host
    if host not in names:
        return pieces
    reason = f"the shard in {stem}{SUFFIX} reports the name of {host}"
    return [Broken(stem, reason, shards[0].digest)]
